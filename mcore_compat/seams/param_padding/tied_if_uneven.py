"""A tied embedding starts at the end of the bucket before it only where its ranks could not share it otherwise.

Where they could, it starts inside that bucket's padding, and the first and the last stage may cut it differently.

Upstream: 0.9.0 (ba8f2defc5); 0.13.0 moves it always (afb755f548).
Verified: 0.9.0, 0.10.0, 0.11.0, 0.12.0, 0.12.3.
Drop when: the floor passes 0.12.
"""

from __future__ import annotations

from collections.abc import Callable

from mcore_compat.seams._registry import Shape
from mcore_compat.seams.param_padding import PRIVATE_BUFFER, PaddingRule, seam

UNEVEN = (f"{PRIVATE_BUFFER}.__init__", "param_start_index % self.data_parallel_world_size != 0")


def _tied_start(position: int, bucket_end: int, ranks: int) -> tuple[int, int]:
    start = bucket_end if position % ranks else position
    return start, start


RULE = PaddingRule(parameter_multiple=64, bucket_multiple=128, tied_start=_tied_start)


@seam.variant("tied_if_uneven", since="0.9.0", shape=Shape(contains={UNEVEN}))
def bind() -> Callable[[], PaddingRule]:
    """Nothing of upstream's to bind."""
    return lambda: RULE
