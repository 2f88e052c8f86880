"""The factory lives in the Megatron-LM repository and reads the program's global arguments.

Its classes are used as they are; while it runs, the arguments it asks for are ours, and ``step`` gets the two
arguments that it wants.

Upstream: 0.6.0 moved it to ``megatron.core.optimizer`` with a config object.
Drop when: the floor passes 0.5.0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from mcore_compat.contracts import DataParallelSettings, OptimizerSettings
from mcore_compat.seams._registry import Shape
from mcore_compat.seams.config import dtype_of
from mcore_compat.seams.optimizer import MakeOptimizer, seam
from mcore_compat.seams.optimizer._groups import clip_bound, decays_not, lr_groups


@seam.variant(
    "repository",
    since="0.4.0",
    shape=Shape(
        defines={"megatron.optimizer:get_megatron_optimizer"},
        undefined={"megatron.core.optimizer:get_megatron_optimizer"},
    ),
)
def bind() -> MakeOptimizer:
    """Bind the repository's factory."""
    from megatron import optimizer as upstream
    from megatron.optimizer import distrib_optimizer

    groups_function = next(name for name in ("get_param_groups", "_get_param_groups") if hasattr(upstream, name))

    def make(settings: OptimizerSettings, chunks: Sequence[Any], data_parallel: DataParallelSettings) -> Any:
        arguments = _arguments(settings, data_parallel)
        with (
            _global_arguments(arguments, upstream, distrib_optimizer),
            lr_groups(upstream, groups_function, settings, chunks),
        ):
            inner = upstream.get_megatron_optimizer(list(chunks), no_weight_decay_cond=decays_not(settings))
        step = inner.step
        inner.step = lambda: step(arguments, _no_timers)
        inner.keeps_params_in_grad_buffer = data_parallel.use_distributed_optimizer
        return inner

    return make


def _arguments(settings: OptimizerSettings, data_parallel: DataParallelSettings) -> SimpleNamespace:
    return SimpleNamespace(
        optimizer=settings.optimizer,
        lr=settings.lr,
        weight_decay=settings.weight_decay,
        adam_beta1=settings.betas[0],
        adam_beta2=settings.betas[1],
        adam_eps=settings.eps,
        sgd_momentum=settings.momentum,
        fp16=settings.precision == "fp16",
        bf16=settings.precision == "bf16",
        params_dtype=dtype_of(settings.precision),
        loss_scale=settings.loss_scale,
        initial_loss_scale=settings.initial_loss_scale,
        min_loss_scale=1.0,
        loss_scale_window=1000,
        hysteresis=2,
        clip_grad=clip_bound(settings),
        log_num_zeros_in_grad=settings.log_num_zeros_in_grad,
        check_for_nan_in_loss_and_grad=False,
        use_distributed_optimizer=data_parallel.use_distributed_optimizer,
        overlap_param_gather=data_parallel.overlap_param_gather,
        barrier_with_L1_time=False,
    )


@contextmanager
def _global_arguments(arguments: SimpleNamespace, *modules: Any) -> Iterator[None]:
    originals = [module.get_args for module in modules]
    for module in modules:
        module.get_args = lambda: arguments
    try:
        yield
    finally:
        for module, original in zip(modules, originals, strict=True):
            module.get_args = original


class _NoTimer:
    """Takes the calls that a timer takes and measures nothing."""

    def start(self, barrier: bool = False) -> None:
        """Do nothing."""

    def stop(self, barrier: bool = False) -> None:
        """Do nothing."""


def _no_timers(name: str, log_level: int | None = None) -> _NoTimer:
    return _NoTimer()
