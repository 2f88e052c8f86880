"""A tied embedding starts where the bucket before it ends, padding included.

Upstream: 0.13.0 (afb755f548). 0.18.0 computes the same layout outside the buffer.
Verified: 0.13.1, 0.14.0, 0.15.3, 0.16.1, 0.17.1, 0.18.2, 0.19.2.
"""

from __future__ import annotations

from collections.abc import Callable

from mcore_compat.seams._registry import Shape
from mcore_compat.seams.param_padding import PRIVATE_BUFFER, PaddingRule, seam
from mcore_compat.seams.param_padding.tied_if_uneven import UNEVEN


def _tied_start(position: int, bucket_end: int, ranks: int) -> tuple[int, int]:
    return position, bucket_end


RULE = PaddingRule(parameter_multiple=64, bucket_multiple=128, tied_start=_tied_start, splits_experts=True)


@seam.variant("tied_at_bucket_end", since="0.13.0", shape=Shape(defines={PRIVATE_BUFFER}, omits={UNEVEN}))
def bind() -> Callable[[], PaddingRule]:
    """Nothing of upstream's to bind."""
    return lambda: RULE
