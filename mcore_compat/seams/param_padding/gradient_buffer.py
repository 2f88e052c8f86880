"""Gradients only, without gaps; a bucket holds two parameters at least, experts have none.

Upstream: 0.6.0 made one buffer for parameters and gradients, for experts too.
Verified: 0.4.0, 0.5.0.
Drop when: the floor passes 0.5.0.
"""

from __future__ import annotations

from collections.abc import Callable

from mcore_compat.seams._registry import Shape
from mcore_compat.seams.param_padding import PaddingRule, seam

RULE = PaddingRule(fewest=2, size_grows=False, by_parameter_type=False, buffers_experts=False)


@seam.variant(
    "gradient_buffer", since="0.4.0", shape=Shape(defines={"megatron.core.distributed.grad_buffer:GradBuffer"})
)
def bind() -> Callable[[], PaddingRule]:
    """Nothing of upstream's to bind."""
    return lambda: RULE
