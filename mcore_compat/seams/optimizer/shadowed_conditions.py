"""The factory takes a config object, and loses the learning-rate multiplier at the first parameter without one.

Upstream: 0.8.0 stopped overwriting the argument.
Drop when: the floor passes 0.7.0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mcore_compat.contracts import DataParallelSettings, OptimizerSettings
from mcore_compat.seams._registry import Shape
from mcore_compat.seams.keywords import unavailable
from mcore_compat.seams.optimizer import MakeOptimizer, seam
from mcore_compat.seams.optimizer._config import optimizer_config
from mcore_compat.seams.optimizer._groups import decays_not, lr_groups

_SHADOWING = ("megatron.core.optimizer:_get_param_groups", "wd_mult, lr_mult = 1.0, lr_mult")


@seam.variant(
    "shadowed_conditions",
    since="0.6.0",
    shape=Shape(accepts={"config", "no_weight_decay_cond"}, contains={_SHADOWING}),
)
def bind() -> MakeOptimizer:
    """Bind upstream's factory."""
    from megatron.core import optimizer as upstream

    def make(settings: OptimizerSettings, chunks: Sequence[Any], data_parallel: DataParallelSettings) -> Any:
        _refuse_partial_norms(settings, data_parallel)
        with lr_groups(upstream, "_get_param_groups", settings, chunks):
            return upstream.get_megatron_optimizer(
                optimizer_config(settings, data_parallel),
                list(chunks),
                no_weight_decay_cond=decays_not(settings),
            )

    return make


def _refuse_partial_norms(settings: OptimizerSettings, data_parallel: DataParallelSettings) -> None:
    """Experts have their own optimizer here: it clips by its own norm and, unsharded, sees those of this rank only."""
    from mcore_compat.seams.parallel import groups

    if groups().ep.size == 1:
        return
    if settings.clip_grad:
        raise unavailable("clip_grad over experts and all other parameters together", "0.8.0")
    if not data_parallel.use_distributed_optimizer:
        raise unavailable("the gradient norm of experts on several ranks without the distributed optimizer", "0.8.0")
