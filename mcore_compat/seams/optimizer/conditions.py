"""The factory takes a config object and conditions on parameters.

Group objects that later releases accept (0.14.0, 0.15.0) are optional, and left out they mean the groups of
``init_parallel``.

Upstream: 0.16.0 replaced the conditions by ``config_overrides``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mcore_compat.contracts import DataParallelSettings, OptimizerSettings
from mcore_compat.seams._registry import Shape
from mcore_compat.seams.optimizer import MakeOptimizer, seam
from mcore_compat.seams.optimizer._config import optimizer_config
from mcore_compat.seams.optimizer._groups import decays_not, on_plain_names
from mcore_compat.seams.optimizer.shadowed_conditions import _SHADOWING


@seam.variant("conditions", since="0.8.0", shape=Shape(accepts={"config", "no_weight_decay_cond"}, omits={_SHADOWING}))
def bind() -> MakeOptimizer:
    """Bind upstream's factory."""
    from megatron.core.optimizer import get_megatron_optimizer

    def make(settings: OptimizerSettings, chunks: Sequence[Any], data_parallel: DataParallelSettings) -> Any:
        scale = settings.scale_lr_cond
        return get_megatron_optimizer(
            optimizer_config(settings, data_parallel),
            list(chunks),
            no_weight_decay_cond=decays_not(settings),
            scale_lr_cond=on_plain_names(scale) if scale else None,
            lr_mult=settings.lr_mult,
        )

    return make
