"""The optimizer factory's conditions on parameters."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from mcore_compat.detect import Facts
from mcore_compat.legacy.changes._change import Change, module
from mcore_compat.legacy.warn import told
from mcore_compat.runtime.patches import Patch

_HOME = "megatron.core.optimizer"


def _takes_overrides(facts: Facts) -> bool:
    return "config_overrides" in (facts.parameters(f"{_HOME}:get_megatron_optimizer") or ())


def _conditions(attributes: tuple[str, ...]) -> Iterator[Patch]:
    original = module(_HOME).get_megatron_optimizer

    @functools.wraps(original)
    def get_megatron_optimizer(
        config: Any,
        model_chunks: Any,
        no_weight_decay_cond: Any = None,
        scale_lr_cond: Any = None,
        lr_mult: float = 1.0,
        **keywords: Any,
    ) -> Any:
        if no_weight_decay_cond is None and scale_lr_cond is None:
            return original(config, model_chunks, **keywords)
        told(
            "get_megatron_optimizer(no_weight_decay_cond=, scale_lr_cond=, lr_mult=)",
            "OptimizerSettings(no_weight_decay_cond=..., scale_lr_cond=..., lr_mult=...)",
        )
        overrides = _overrides(no_weight_decay_cond, scale_lr_cond, config, lr_mult)
        return original(config, model_chunks, config_overrides=overrides, **keywords)

    yield Patch(module(_HOME), "get_megatron_optimizer", get_megatron_optimizer, "conditions on parameters")


def _overrides(no_decay: Any, scaled: Any, config: Any, lr_mult: float) -> dict[Any, dict[str, float]]:
    exempt = no_decay or (lambda name, parameter: name.endswith(".bias") or parameter.ndim == 1)
    found = {_key("no_weight_decay", exempt): {"wd_mult": 0.0}}
    if scaled is not None:  # multipliers of rates act no more; the rates between which the scheduler moves do
        rates = {"max_lr": config.lr * lr_mult, "min_lr": (config.min_lr or 0.0) * lr_mult}
        found[_key("scaled_lr", scaled)] = rates
    return found


def _key(name: str, condition: Any) -> Any:
    keys = module(f"{_HOME}.optimizer_config")

    def of(parameter: Any, parameter_name: str) -> bool:
        return bool(condition(parameter_name, parameter))

    return keys.ParamKey(with_name_predicate=keys.ParamWithNamePredicate(name=name, fn=of))


CHANGES = (Change("get_megatron_optimizer takes conditions on parameters", "0.15.3", _takes_overrides, _conditions),)
