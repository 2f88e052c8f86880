"""There is no optimizer: the wheels of 0.4 and 0.5 hold ``megatron/core`` only, so this package brings its own.

Upstream: 0.6.0 moved the optimizer into ``megatron.core.optimizer``.
Drop when: the floor passes 0.5.0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mcore_compat.contracts import DataParallelSettings, OptimizerSettings
from mcore_compat.seams._registry import Shape
from mcore_compat.seams.keywords import unavailable
from mcore_compat.seams.optimizer import MakeOptimizer, seam


@seam.variant(
    "own",
    since="0.4.0",
    shape=Shape(
        undefined={
            "megatron.optimizer:get_megatron_optimizer",
            "megatron.core.optimizer:get_megatron_optimizer",
        }
    ),
)
def bind() -> MakeOptimizer:
    """Bind our optimizer over that release's gradient buffers."""
    from mcore_compat.seams.optimizer._own.optimizer import BufferOptimizer
    from mcore_compat.seams.parallel import groups

    def make(settings: OptimizerSettings, chunks: Sequence[Any], data_parallel: DataParallelSettings) -> Any:
        if data_parallel.overlap_param_gather:
            raise unavailable("overlap_param_gather with the wheel alone (it has no optimizer)", "0.6.0")
        if groups().ep.size > 1:
            raise unavailable("expert parallelism with the wheel alone (it has no optimizer)", "0.6.0")
        return BufferOptimizer(settings, chunks, sharded=data_parallel.use_distributed_optimizer)

    return make
