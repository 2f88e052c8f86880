"""Parameters start at multiples of 64 elements.

Upstream: 0.9.0 pads before a tied embedding where it has to.
Verified: 0.8.0.
Drop when: the floor passes 0.8.0.
"""

from __future__ import annotations

from collections.abc import Callable

from mcore_compat.seams._registry import Shape
from mcore_compat.seams.param_padding import BUFFER, PRIVATE_BUFFER, PaddingRule, seam
from mcore_compat.seams.param_padding._tied import where_it_would

RULE = PaddingRule(parameter_multiple=64, bucket_multiple=128, tied_start=where_it_would)


@seam.variant(
    "aligned_parameters",
    since="0.8.0",
    shape=Shape(undefined={PRIVATE_BUFFER}, contains={(f"{BUFFER}.__init__", "_pad_start_of_param_if_needed")}),
)
def bind() -> Callable[[], PaddingRule]:
    """Nothing of upstream's to bind."""
    return lambda: RULE
