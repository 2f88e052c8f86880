"""The optimizer launches the gather in ``zero_grad`` and finishes it chunk by chunk.

Upstream: 0.9.0 moved both to the data-parallel wrapper.
Drop when: the floor passes 0.8.0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from mcore_compat.seams._registry import Shape
from mcore_compat.seams.param_sync import WRAPPER_GATHERS, ParamSync, seam


@seam.variant("by_optimizer", since="0.4.0", shape=Shape(undefined={WRAPPER_GATHERS}))
def bind() -> Callable[[], ParamSync]:
    """Bind the optimizer's methods."""

    def finish(chunks: Sequence[Any], optimizer: Any) -> None:
        optimizer.zero_grad()
        for index in range(len(chunks)):
            optimizer.finish_param_sync(index)

    def hooks(chunks: Sequence[Any], optimizer: Any) -> list[Callable[..., None]]:
        return [partial(optimizer.finish_param_sync, index) for index in range(len(chunks))]

    return lambda: ParamSync(finish, hooks)
