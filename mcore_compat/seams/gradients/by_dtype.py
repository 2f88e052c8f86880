"""One buffer per gradient type in a dict; experts keep tensors of their own.

Upstream: 0.6.0 made ParamAndGradBuffer, for experts too.
Drop when: the floor passes 0.5.0.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from mcore_compat.seams._registry import Shape
from mcore_compat.seams.gradients import GradientStorage, seam

if TYPE_CHECKING:
    import torch


@seam.variant("by_dtype", since="0.4.0", shape=Shape(defines={"megatron.core.distributed.grad_buffer:GradBuffer"}))
def bind() -> GradientStorage:
    """Bind the wrapper's attributes."""

    def storage(chunk: Any) -> Iterator[torch.Tensor]:
        for buffer in chunk.grad_buffers.values():
            yield buffer.data
        yield from chunk.expert_grads

    return storage
