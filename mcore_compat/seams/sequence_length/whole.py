"""Schedules take the length of the whole sequence.

Upstream: 0.5.0; from 0.14.0 the size comes from a group object.
"""

from __future__ import annotations

from mcore_compat.seams._registry import Shape
from mcore_compat.seams.sequence_length import _DIVIDES, _DIVIDES_BY_GROUP, SequenceLength, seam


@seam.variant("whole", since="0.5.0", shape=Shape(contains={_DIVIDES}))
@seam.variant("whole_by_group", since="0.14.0", shape=Shape(contains={_DIVIDES_BY_GROUP}))
def bind() -> SequenceLength:
    """Upstream divides."""
    return lambda length, context_parallel: length
