"""Buckets divide among the ranks and nothing else is padded; a tied embedding has a bucket of its own.

Upstream: 0.7.0 aligned buckets.
Verified: 0.6.0.
Drop when: the floor passes 0.6.0.
"""

from __future__ import annotations

from collections.abc import Callable

from mcore_compat.seams._registry import Shape
from mcore_compat.seams.param_padding import BUFFER, PRIVATE_BUFFER, PaddingRule, seam
from mcore_compat.seams.param_padding._tied import where_it_would

RULE = PaddingRule(tied_start=where_it_would, size_grows=False)


@seam.variant(
    "whole_shards",
    since="0.6.0",
    shape=Shape(defines={BUFFER}, undefined={PRIVATE_BUFFER}, omits={(f"{BUFFER}.__init__", "math.lcm(")}),
)
def bind() -> Callable[[], PaddingRule]:
    """Nothing of upstream's to bind."""
    return lambda: RULE
