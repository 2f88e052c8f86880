"""Conditions on parameters, in the form that upstream's factories take."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from mcore_compat.contracts import OptimizerSettings, ParameterCondition

# Upstream reads 0 as "do not even compute the norm"; with this bound it computes the norm and never clips.
NO_CLIPPING = float("inf")


def clip_bound(settings: OptimizerSettings) -> float:
    """What to hand to upstream as ``clip_grad``."""
    return settings.clip_grad or NO_CLIPPING


def decays_not(settings: OptimizerSettings) -> ParameterCondition:
    """The weight-decay exemption, on names without wrapper prefixes."""
    return on_plain_names(settings.no_weight_decay_cond or _bias_or_vector)


def on_plain_names(condition: ParameterCondition) -> ParameterCondition:
    """``condition``, called with the name as the innermost module knows the parameter."""

    def plain(name: str, parameter: Any) -> bool:
        return condition(plain_name(name), parameter)

    return plain


def plain_name(name: str) -> str:
    """``module.module.decoder...`` without the wrappers' ``module.``."""
    while name.startswith("module."):
        name = name.removeprefix("module.")
    return name


def _bias_or_vector(name: str, parameter: Any) -> bool:
    return name.endswith(".bias") or parameter.ndim == 1


@contextmanager
def lr_groups(
    upstream: ModuleType, function: str, settings: OptimizerSettings, chunks: Sequence[Any]
) -> Iterator[None]:
    """While open, ``upstream.<function>`` also splits its groups by ``scale_lr_cond``.

    The function of 0.5 to 0.7 overwrites its ``lr_mult`` argument at the first parameter that is not scaled.
    """
    original = getattr(upstream, function)

    def grouped(*args: Any, **kwargs: Any) -> list[dict[str, Any]]:
        return [part for group in original(*args, **kwargs) for part in split_by_lr(group, settings, chunks)]

    setattr(upstream, function, grouped)
    try:
        yield
    finally:
        setattr(upstream, function, original)


def split_by_lr(group: dict[str, Any], settings: OptimizerSettings, chunks: Sequence[Any]) -> Iterator[dict[str, Any]]:
    """The group in two: the parameters whose rate is multiplied, and the others; empty halves are left out."""
    if settings.scale_lr_cond is None:
        yield group
        return
    condition = on_plain_names(settings.scale_lr_cond)
    scaled = {id(p) for chunk in chunks for name, p in chunk.named_parameters() if condition(name, p)}
    for is_scaled, multiplier in ((False, 1.0), (True, settings.lr_mult)):
        params = [parameter for parameter in group["params"] if (id(parameter) in scaled) is is_scaled]
        if params:
            yield {**group, "params": params, "lr_mult": multiplier}
