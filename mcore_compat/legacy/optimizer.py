"""``megatron.optimizer`` of 0.4 and 0.5: its classes, over the optimizer that ``build_optimizer`` makes.

The torch optimizer that a program hands over is read (kind, groups, rates) and replaced: where the release keeps
parameters in a buffer, only its own optimizer can update them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from mcore_compat.contracts import OptimizerSettings
from mcore_compat.errors import FeatureUnavailable, NumericalError
from mcore_compat.legacy import clip_grads, homes
from mcore_compat.legacy.global_vars import get_args
from mcore_compat.legacy.param_groups import (
    Condition,
    Group,
    as_settings,
    get_param_groups,
    multipliers,
    torch_optimizer,
)
from mcore_compat.legacy.warn import told
from mcore_compat.seams.data_parallel import settings_of
from mcore_compat.seams.optimizer import build_optimizer

__all__ = [
    "ConstantGradScaler",
    "DistributedOptimizer",
    "DynamicGradScaler",
    "FP32Optimizer",
    "Float16OptimizerWithFloat16Params",
    "MegatronOptimizer",
    "MixedPrecisionOptimizer",
    "clip_grad_norm_fp32",
    "get_megatron_optimizer",
    "get_param_groups",
]

_STEP = "optimizer.step() of mcore_compat.build_optimizer"


@dataclass
class ConstantGradScaler:
    """A fixed loss scale."""

    initial_scale: float


@dataclass
class DynamicGradScaler:
    """A loss scale that adapts; growth and backoff are those of the release."""

    initial_scale: float
    min_scale: float
    growth_factor: float
    backoff_factor: float
    growth_interval: int
    hysteresis: int


class MegatronOptimizer:
    """What all optimizers of the era share.

    Args:
        optimizer: Apex's or torch's Adam or SGD over :func:`get_param_groups`.
        clip_grad: Largest global norm; 0: no clipping.
        log_num_zeros_in_grad: Whether steps count zero gradients.
        check_for_nan_in_grad: Unused: a norm that is no number shows it.
        params_have_main_grad: Unused: the wrapper decides.
        models: Wrapped chunks; needed only where ``legacy.install()`` has not seen them. Left out by 0.5.
        sharded: Whether the state is distributed over data-parallel ranks.
        settings: Further ones of :class:`mcore_compat.OptimizerSettings`.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        clip_grad: float,
        log_num_zeros_in_grad: bool,
        check_for_nan_in_grad: bool,
        params_have_main_grad: bool,
        models: Any = None,
        *,
        sharded: bool = False,
        **settings: Any,
    ) -> None:
        self.optimizer = optimizer
        settings |= {"clip_grad": clip_grad, "log_num_zeros_in_grad": log_num_zeros_in_grad}
        given = optimizer.param_groups
        seen = homes.wrappers_of(parameter for group in given for parameter in group["params"])
        self._chunks = seen or list(models or ())
        self._stable = build_optimizer(
            OptimizerSettings(**as_settings(optimizer), **settings),
            self._chunks,
            replace(settings_of(self._chunks, None), use_distributed_optimizer=sharded),
        )
        for group in self._stable.param_groups:  # before its scheduler runs, the era decays whatever its groups say
            theirs = next((own for own in given if multipliers(own) == multipliers(group)), given[0])
            group.update({name: theirs[name] for name in ("lr", "weight_decay")})

    @property
    def param_groups(self) -> list[Group]:
        """Live groups: what a scheduler writes into them holds for the next step."""
        return self._stable.param_groups

    def step(self, args: Any = None, timers: Any = None) -> tuple[bool, float | None, int | None]:
        """Update; arguments are for timing only and unused.

        Returns:
            Whether parameters were updated (fp16 may overflow), the gradient norm before clipping, and the number of
            zero gradients where asked for.
        """
        if args is not None:
            told("optimizer.step(args, timers)", _STEP)
        # Not the stable step: it refuses parameters that were moved, which programs of the era do.
        updated, norm, zeros = self._stable.inner.step()
        homes.deliver(self._chunks)
        asked = self._stable.settings.log_num_zeros_in_grad
        return bool(updated), None if norm is None else float(norm), zeros if asked else None

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear ``.grad``; the wrapper's ``zero_grad_buffer`` clears the buffers."""
        self._stable.zero_grad()

    def scale_loss(self, loss: torch.Tensor) -> torch.Tensor:
        """The loss times the loss scale."""
        scaled: torch.Tensor = self._stable.scale_loss(loss)
        return scaled

    def get_loss_scale(self) -> torch.Tensor:
        """The loss scale, a [1] tensor."""
        parameter = self.optimizer.param_groups[0]["params"][0]
        return self.scale_loss(torch.ones(1, device=parameter.device))

    def reload_model_params(self) -> None:
        """Take the model's weights; needed after they were loaded."""
        self._stable.reload_model_params()

    def __getattr__(self, name: str) -> Any:
        """State dictionaries and the like are the release's own."""
        if name.startswith("_"):
            raise AttributeError(name)
        inner = self._stable.inner
        if not hasattr(inner, name):
            raise FeatureUnavailable(
                f"{type(self).__name__}.{name} cannot be served by {type(inner).__name__} of this release",
                hint="mcore_compat.save_hf and load_hf keep weights",
            )
        return getattr(inner, name)


class MixedPrecisionOptimizer(MegatronOptimizer):
    """Half-precision parameters with fp32 copies. Arguments are those of 0.4; ``models`` is left out by 0.5."""

    sharded = False

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        clip_grad: float,
        log_num_zeros_in_grad: bool,
        check_for_nan_in_grad: bool,
        params_have_main_grad: bool,
        fp16: bool,
        bf16: bool,
        params_dtype: torch.dtype,
        grad_scaler: ConstantGradScaler | DynamicGradScaler | None,
        models: Any = None,
        overlap_param_gather: bool = False,
    ) -> None:
        if overlap_param_gather:
            raise FeatureUnavailable(
                f"{type(self).__name__}(overlap_param_gather=True) cannot be served",
                hint="DataParallelSettings(overlap_param_gather=True) with mcore_compat.build_optimizer",
            )
        super().__init__(
            optimizer,
            clip_grad,
            log_num_zeros_in_grad,
            check_for_nan_in_grad,
            params_have_main_grad,
            models,
            sharded=self.sharded,
            precision="fp16" if fp16 else "bf16" if bf16 else "fp32",
            **_scaling(grad_scaler),
        )


class Float16OptimizerWithFloat16Params(MixedPrecisionOptimizer):
    """Every rank keeps all of the state."""


class DistributedOptimizer(MixedPrecisionOptimizer):
    """Each data-parallel rank keeps a share of the state."""

    sharded = True


class FP32Optimizer(MegatronOptimizer):
    """fp32 parameters."""


def get_megatron_optimizer(
    model: Sequence[torch.nn.Module],
    no_weight_decay_cond: Condition | None = None,
    scale_lr_cond: Condition | None = None,
    lr_mult: float = 1.0,
) -> MegatronOptimizer:
    """The optimizer that ``get_args()`` asks for."""
    args = get_args()
    groups = get_param_groups(model, no_weight_decay_cond, scale_lr_cond, lr_mult)
    common = (args.clip_grad, args.log_num_zeros_in_grad, args.check_for_nan_in_loss_and_grad, True)
    if not (args.fp16 or args.bf16 or args.use_distributed_optimizer):
        return FP32Optimizer(torch_optimizer(args, groups), *common, model)
    kind = DistributedOptimizer if args.use_distributed_optimizer else Float16OptimizerWithFloat16Params
    scaler: ConstantGradScaler | DynamicGradScaler | None = None
    if args.loss_scale:
        scaler = ConstantGradScaler(args.loss_scale)
    elif args.fp16:
        scaler = DynamicGradScaler(args.initial_loss_scale, 1.0, 2.0, 0.5, 1000, 2)
    return kind(torch_optimizer(args, groups), *common, args.fp16, args.bf16, args.params_dtype, scaler, model)


def clip_grad_norm_fp32(
    parameters: Any,
    grads_for_norm: Any,
    max_norm: float,
    check_for_nan_in_grad: bool,
    norm_type: float = 2.0,
    model_parallel_group: Any = None,
) -> float:
    """As :func:`mcore_compat.legacy.clip_grads.clip_grad_norm_fp32`.

    Raises:
        NumericalError: The norm is not a number, and ``check_for_nan_in_grad`` is set; gradients are as they were.
    """
    norm = clip_grads.clip_grad_norm_fp32(parameters, grads_for_norm, max_norm, norm_type, model_parallel_group)
    if check_for_nan_in_grad and math.isnan(norm):
        raise NumericalError("the gradient norm is not a number", hint="torch.autograd.set_detect_anomaly(True)")
    return norm


def _scaling(scaler: ConstantGradScaler | DynamicGradScaler | None) -> dict[str, Any]:
    if scaler is None:
        return {}
    name = "loss_scale" if isinstance(scaler, ConstantGradScaler) else "initial_loss_scale"
    return {name: float(scaler.initial_scale)}
