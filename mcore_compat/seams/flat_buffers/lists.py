"""Lists of buffers, dense and expert, for gradients, and with the distributed optimizer for parameters.

Upstream: 0.6.0.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mcore_compat.seams._registry import Shape
from mcore_compat.seams.flat_buffers import GRADIENT_BUFFER, FlatBuffer, FlatBuffers, seam


@seam.variant("lists", since="0.6.0", shape=Shape(undefined={GRADIENT_BUFFER}))
def bind() -> FlatBuffers:
    """Bind the wrapper's attributes."""

    def buffers(chunk: Any) -> Iterator[FlatBuffer]:
        for expert, held in enumerate((chunk.buffers, chunk.expert_parallel_buffers)):
            for buffer in held:
                yield FlatBuffer(
                    buffer.param_index_map,
                    buffer.bucket_indices,
                    buffer.param_dtype,
                    buffer.grad_data,
                    buffer.param_data,
                    bool(expert),
                )

    return buffers
