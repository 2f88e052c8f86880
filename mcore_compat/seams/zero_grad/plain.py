"""``zero_grad_buffer()`` always clears.

Upstream: 0.6.0 dropped the argument.
"""

from __future__ import annotations

from typing import Any

from mcore_compat.seams._registry import Shape
from mcore_compat.seams.zero_grad import ClearGradients, seam


@seam.variant("plain", since="0.6.0", shape=Shape(lacks={"zero_buffer"}))
def bind() -> ClearGradients:
    """Bind the wrapper's method."""

    def clear(chunk: Any, keeps_params_in_grad_buffer: bool) -> None:
        chunk.zero_grad_buffer()

    return clear
