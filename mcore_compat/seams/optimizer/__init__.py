"""Axis: how the optimizer is made. Whatever made it, callers hold one :class:`Optimizer`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mcore_compat.contracts import DataParallelSettings, OptimizerSettings
from mcore_compat.errors import ConfigError
from mcore_compat.seams._arguments import misplaced
from mcore_compat.seams._memory import require_here
from mcore_compat.seams._registry import Seam
from mcore_compat.seams.config import dtype_of
from mcore_compat.seams.data_parallel import settings_of
from mcore_compat.seams.optimizer._wrapper import Optimizer

# (settings, wrapped chunks, data-parallel settings) -> upstream's optimizer, ready for Optimizer()
MakeOptimizer = Callable[[OptimizerSettings, Sequence[Any], DataParallelSettings], Any]

seam: Seam[MakeOptimizer] = Seam("optimizer", target="megatron.core.optimizer:get_megatron_optimizer")


def build_optimizer(
    settings: OptimizerSettings, chunks: Sequence[Any], data_parallel: DataParallelSettings | None = None
) -> Optimizer:
    """Build the optimizer of these chunks.

    Every rank of the job must call at the same point: from 0.14 on, upstream agrees on the parameter groups over all
    ranks.

    Args:
        settings: What it does.
        chunks: From :func:`mcore_compat.wrap_data_parallel`.
        data_parallel: The settings that the chunks were wrapped with, where :func:`mcore_compat.wrap_data_parallel`
            was not asked to: it remembers them.

    Raises:
        ConfigError: Arguments of another kind, Megatron refuses the combination, the chunks were wrapped with other
            settings, or their parameters are of another half precision than the settings'.
        FeatureUnavailable: A setting that this release cannot honour.
    """
    from mcore_compat.seams._agreement import same_on_all_ranks

    _check_settings(settings)
    data_parallel = settings_of(chunks, data_parallel)
    require_here(chunks, "build_optimizer", "params")
    _check_precision(settings, chunks)
    make = seam.bind()
    with same_on_all_ranks("building the optimizer"):
        inner = make(settings, chunks, data_parallel)
    return Optimizer(inner, settings, chunks, data_parallel)


def _check_settings(settings: OptimizerSettings) -> None:
    """Some releases take anything for Adam, and texts (as YAML reads ``1e-6``) for numbers until the first step."""
    if not isinstance(settings, OptimizerSettings):
        raise misplaced(settings, "OptimizerSettings", "build_optimizer(mcore_compat.OptimizerSettings(...), chunks)")
    if settings.optimizer not in ("adam", "sgd"):
        raise ConfigError(
            f"optimizer must be adam or sgd, found {settings.optimizer!r}",
            hint='adam decouples weight decay already, as "adamw" does elsewhere',
        )
    dtype_of(settings.precision)
    for name in ("lr", "weight_decay", "eps", "momentum", "clip_grad", "lr_mult"):
        value = getattr(settings, name)
        if not isinstance(value, int | float):
            hint = "clip_grad=0 does not clip" if name == "clip_grad" else f"{name}=float(...)"
            raise ConfigError(f"OptimizerSettings.{name} must be a number, found {value!r}", hint=hint)


def _check_precision(settings: OptimizerSettings, chunks: Sequence[Any]) -> None:
    """A half-precision parameter in an optimizer of another precision fails only in the first step, far from here."""
    halves = {dtype_of("bf16"): "bf16", dtype_of("fp16"): "fp16"}
    for name, parameter in (named for chunk in chunks for named in chunk.named_parameters()):
        found = halves.get(parameter.dtype)
        if parameter.requires_grad and found not in (None, settings.precision):
            raise ConfigError(
                f"{name} is {found}, but the optimizer is to be {settings.precision}",
                hint=f'OptimizerSettings(precision="{found}")',
            )


__all__ = ["MakeOptimizer", "Optimizer", "build_optimizer", "seam"]
