"""The schedule leaves the loss alone; the wrapper averages over data × context-parallel ranks.

Upstream: 0.12.0 lets the schedule undo the context-parallel part.
Drop when: the floor passes 0.11.0.
"""

from __future__ import annotations

from mcore_compat.seams._registry import Shape
from mcore_compat.seams.loss_scale import _CALC_LOSS, _DATA_PARALLEL_ONLY, _MULTIPLIES, LossFactor, seam


@seam.variant("plain", since="0.4.0", shape=Shape(undefined={_CALC_LOSS}, omits={_MULTIPLIES, _DATA_PARALLEL_ONLY}))
def bind() -> LossFactor:
    """Nothing to undo."""
    return lambda context_parallel: 1.0


@seam.variant("data_parallel_only", since="0.8.0", shape=Shape(contains={_DATA_PARALLEL_ONLY}))
def bind_data_parallel_only() -> LossFactor:
    """0.8.0 alone averages over data-parallel ranks only, so gradients come out too large under context parallelism."""
    return lambda context_parallel: float(context_parallel)
