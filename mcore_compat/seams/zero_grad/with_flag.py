"""``zero_grad_buffer(zero_buffer)``: False where the optimizer's step has cleared the buffer already.

The distributed optimizer of these releases gathers parameters in the storage of the gradient buffer; clearing it here
would destroy values that are still in flight.

Upstream: 0.6.0 separated the two buffers and dropped the argument.
Drop when: the floor passes 0.5.0.
"""

from __future__ import annotations

from typing import Any

from mcore_compat.seams._registry import Shape
from mcore_compat.seams.zero_grad import ClearGradients, seam


@seam.variant("with_flag", since="0.4.0", shape=Shape(accepts={"zero_buffer"}))
def bind() -> ClearGradients:
    """Bind the wrapper's method."""

    def clear(chunk: Any, keeps_params_in_grad_buffer: bool) -> None:
        chunk.zero_grad_buffer(zero_buffer=not keeps_params_in_grad_buffer)

    return clear
