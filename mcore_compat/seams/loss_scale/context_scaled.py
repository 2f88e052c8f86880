"""The schedule multiplies the loss by the context-parallel size, which the wrapper divides by again.

Upstream: 0.12.0; from 0.14.0 in a function of its own.
"""

from __future__ import annotations

from mcore_compat.seams._registry import Shape
from mcore_compat.seams.loss_scale import _CALC_LOSS, _MULTIPLIES, LossFactor, seam


@seam.variant("context_scaled", since="0.12.0", shape=Shape(undefined={_CALC_LOSS}, contains={_MULTIPLIES}))
@seam.variant("context_scaled_apart", since="0.14.0", shape=Shape(defines={_CALC_LOSS}))
def bind() -> LossFactor:
    """The schedule's factor."""
    return lambda context_parallel: float(context_parallel)
