"""Lists of buffers, dense and expert, each with its gradients in ``grad_data``.

Upstream: 0.6.0.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from mcore_compat.seams._registry import Shape
from mcore_compat.seams.gradients import GradientStorage, seam

if TYPE_CHECKING:
    import torch


@seam.variant("buffers", since="0.6.0", shape=Shape(undefined={"megatron.core.distributed.grad_buffer:GradBuffer"}))
def bind() -> GradientStorage:
    """Bind the wrapper's attributes."""

    def storage(chunk: Any) -> Iterator[torch.Tensor]:
        for buffer in [*chunk.buffers, *chunk.expert_parallel_buffers]:
            yield buffer.grad_data

    return storage
