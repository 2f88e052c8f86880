"""``OptimizerConfig`` from our settings (0.6 and later)."""

from __future__ import annotations

import dataclasses
from typing import Any

from mcore_compat.contracts import DataParallelSettings, OptimizerSettings
from mcore_compat.seams.config import dtype_of
from mcore_compat.seams.optimizer._groups import clip_bound


def optimizer_config(settings: OptimizerSettings, data_parallel: DataParallelSettings) -> Any:
    """Upstream's config object."""
    from megatron.core.optimizer import OptimizerConfig

    known = {field.name for field in dataclasses.fields(OptimizerConfig)}
    overlap = {
        "overlap_grad_reduce": data_parallel.overlap_grad_reduce,
        "overlap_param_gather": data_parallel.overlap_param_gather,
    }
    return OptimizerConfig(
        optimizer=settings.optimizer,
        lr=settings.lr,
        min_lr=0.0,
        weight_decay=settings.weight_decay,
        adam_beta1=settings.betas[0],
        adam_beta2=settings.betas[1],
        adam_eps=settings.eps,
        sgd_momentum=settings.momentum,
        clip_grad=clip_bound(settings),
        fp16=settings.precision == "fp16",
        bf16=settings.precision == "bf16",
        params_dtype=dtype_of(settings.precision),
        loss_scale=settings.loss_scale,
        initial_loss_scale=settings.initial_loss_scale,
        log_num_zeros_in_grad=settings.log_num_zeros_in_grad,
        use_distributed_optimizer=data_parallel.use_distributed_optimizer,
        # Only the releases whose optimizer does the gathering have these; elsewhere the wrapper does it.
        **{name: value for name, value in overlap.items() if name in known},
    )
