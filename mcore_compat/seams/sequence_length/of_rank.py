"""Schedules take the length of this rank's part.

Upstream: 0.5.0 divides inside the schedule.
Drop when: the floor passes 0.4.0.
"""

from __future__ import annotations

from mcore_compat.seams._registry import Shape
from mcore_compat.seams.sequence_length import _DIVIDES, _DIVIDES_BY_GROUP, SequenceLength, seam


@seam.variant("of_rank", since="0.4.0", shape=Shape(omits={_DIVIDES, _DIVIDES_BY_GROUP}))
def bind() -> SequenceLength:
    """Divide here."""
    return lambda length, context_parallel: length // context_parallel
