"""Which elements of which parameters this rank updates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from mcore_compat.contracts import Groups


@dataclass(frozen=True)
class Segment:
    """A run of elements of one parameter, with its fp32 main copy.

    Attributes:
        index: Place of the parameter in the order of registration.
        name: Of the parameter.
        parameter: The model's parameter.
        start: First element, in the flattened parameter.
        stop: One past the last one.
        main: fp32 [stop - start]; shares the parameter's storage where that is fp32 already.
        gradient: The same elements of the gradient buffer.
    """

    index: int
    name: str
    parameter: torch.nn.Parameter
    start: int
    stop: int
    main: torch.nn.Parameter
    gradient: torch.Tensor

    @property
    def model_values(self) -> torch.Tensor:
        """The elements as the model holds them (a view)."""
        return self.parameter.data.view(-1)[self.start : self.stop]

    def counts_in_norm(self, tp_rank: int) -> bool:
        """Whether this rank's copy is the one that enters the global norm."""
        shared = getattr(self.parameter, "shared", False)
        return not shared and (getattr(self.parameter, "tensor_model_parallel", False) or tp_rank == 0)


@dataclass(frozen=True)
class Bucket:
    """A stretch of a gradient buffer that is reduced, and here gathered, at once."""

    numel: int
    shard: slice
    pieces: tuple[tuple[torch.nn.Parameter, slice], ...]


def segments(chunks: Sequence[Any], here: Groups, *, sharded: bool) -> Iterator[Segment]:
    """Everything this rank owns, in buffer order: all of it, or its shard of each bucket."""
    registered = [pair for chunk in chunks for pair in chunk.named_parameters()]
    places = {parameter: (index, name) for index, (name, parameter) in enumerate(registered)}
    for buffer in _buffers(chunks):
        for parameter, (start, stop, bucket) in buffer.param_index_map.items():
            first, last = _owned(buffer.bucket_indices[bucket], here, sharded=sharded)
            low, high = max(start, first), min(stop, last)
            if low < high:
                main = _main_parameter(parameter, low - start, high - start, buffer.data[low:high])
                yield Segment(*places[parameter], parameter, low - start, high - start, main, buffer.data[low:high])


def buckets(chunks: Sequence[Any], here: Groups) -> Iterator[Bucket]:
    """The buckets to gather after a sharded update."""
    for buffer in _buffers(chunks):
        for index, (first, last) in enumerate(buffer.bucket_indices):
            low, high = _owned((first, last), here, sharded=True)
            pieces = tuple(
                (parameter, slice(start - first, stop - first))
                for parameter, (start, stop, bucket) in buffer.param_index_map.items()
                if bucket == index
            )
            yield Bucket(last - first, slice(low - first, high - first), pieces)


def _buffers(chunks: Sequence[Any]) -> Iterator[Any]:
    for chunk in chunks:
        yield from chunk.grad_buffers.values()


def _owned(bucket: tuple[int, int], here: Groups, *, sharded: bool) -> tuple[int, int]:
    first, last = bucket
    if not sharded:
        return first, last
    size = (last - first) // here.dp_cp.size
    return first + here.dp_cp.rank * size, first + (here.dp_cp.rank + 1) * size


def _main_parameter(parameter: torch.nn.Parameter, start: int, stop: int, gradient: torch.Tensor) -> torch.nn.Parameter:
    main = torch.nn.Parameter(parameter.data.view(-1)[start:stop].float())
    main.grad = gradient if gradient.dtype == torch.float32 else torch.empty_like(main)
    return main
