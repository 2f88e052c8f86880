"""The factory takes overrides per parameter instead of conditions.

A dict replaces the standard overrides, so both of ours are given. Upstream's multiplier of the learning rate has no
effect any more; as an override it still reaches the parameter group, where :meth:`Optimizer.set_lr` reads it.

Upstream: 0.16.0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mcore_compat.contracts import DataParallelSettings, OptimizerSettings, ParameterCondition
from mcore_compat.seams._registry import Shape
from mcore_compat.seams.optimizer import MakeOptimizer, seam
from mcore_compat.seams.optimizer._config import optimizer_config
from mcore_compat.seams.optimizer._groups import decays_not, on_plain_names


@seam.variant("overrides", since="0.16.0", shape=Shape(accepts={"config_overrides"}))
def bind() -> MakeOptimizer:
    """Bind upstream's factory."""
    from megatron.core.optimizer import get_megatron_optimizer
    from megatron.core.optimizer.optimizer_config import ParamKey, ParamWithNamePredicate

    def key(name: str, condition: ParameterCondition) -> Any:
        return ParamKey(
            with_name_predicate=ParamWithNamePredicate(
                name=name, fn=lambda parameter, parameter_name: condition(parameter_name, parameter)
            )
        )

    def make(settings: OptimizerSettings, chunks: Sequence[Any], data_parallel: DataParallelSettings) -> Any:
        overrides = {key("no_weight_decay", decays_not(settings)): {"wd_mult": 0.0}}
        if settings.scale_lr_cond is not None:
            overrides[key("scaled_lr", on_plain_names(settings.scale_lr_cond))] = {"lr_mult": settings.lr_mult}
        return get_megatron_optimizer(
            optimizer_config(settings, data_parallel), list(chunks), config_overrides=overrides
        )

    return make
