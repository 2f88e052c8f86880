"""Axis: where the data-parallel wrapper keeps its flat buffers, and what it calls them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mcore_compat.seams._registry import Seam

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class FlatBuffer:
    """A buffer of the wrapper.

    Attributes:
        places: Parameter to (start, end, bucket), in elements, in the order of the buffer.
        buckets: (start, end) of each bucket, padding included.
        parameter_type: Of its parameters; ``None`` where it holds gradients of parameters of any type.
        gradients: 1-D, all of them.
        parameters: 1-D, all of them; ``None`` where parameters keep storage of their own.
        expert: Whether it holds experts.
    """

    places: Mapping[torch.nn.Parameter, tuple[int, int, int]]
    buckets: list[tuple[int, int]]
    parameter_type: torch.dtype | None
    gradients: torch.Tensor
    parameters: torch.Tensor | None
    expert: bool = False


# wrapped chunk -> its buffers, dense ones first
FlatBuffers = Callable[[Any], "Iterator[FlatBuffer]"]

seam: Seam[FlatBuffers] = Seam("flat_buffers")
GRADIENT_BUFFER = "megatron.core.distributed.grad_buffer:GradBuffer"
