"""The data-parallel wrapper gathers, and can be told to do it now.

Upstream: 0.9.0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mcore_compat.seams._registry import Shape
from mcore_compat.seams.param_sync import WRAPPER_GATHERS, ParamSync, seam


@seam.variant("by_wrapper", since="0.9.0", shape=Shape(defines={WRAPPER_GATHERS}))
def bind() -> Callable[[], ParamSync]:
    """Bind the wrapper's method."""

    def finish(chunks: Sequence[Any], optimizer: Any) -> None:
        for chunk in chunks:
            chunk.start_param_sync(force_sync=True)

    def hooks(chunks: Sequence[Any], optimizer: Any) -> list[Callable[..., None]]:
        # Otherwise its own hooks start each bucket after the one before it, and 0.9.0 and 0.10.0 refuse a second start.
        return [chunk.start_param_sync for chunk in chunks if chunk.ddp_config.align_param_gather]

    return lambda: ParamSync(finish, hooks)
