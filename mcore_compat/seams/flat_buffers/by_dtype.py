"""One buffer per gradient type in a dict, for gradients of dense parameters only.

Upstream: 0.6.0 made ParamAndGradBuffer.
Drop when: the floor passes 0.5.0.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mcore_compat.seams._registry import Shape
from mcore_compat.seams.flat_buffers import GRADIENT_BUFFER, FlatBuffer, FlatBuffers, seam


@seam.variant("by_dtype", since="0.4.0", shape=Shape(defines={GRADIENT_BUFFER}))
def bind() -> FlatBuffers:
    """Bind the wrapper's attributes."""

    def buffers(chunk: Any) -> Iterator[FlatBuffer]:
        for buffer in chunk.grad_buffers.values():
            yield FlatBuffer(buffer.param_index_map, buffer.bucket_indices, None, buffer.data, None)

    return buffers
