"""Views of the parameters that Megatron really holds, inside the flat storage that they lie in."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch

from mcore_compat.seams._arguments import require_chunks
from mcore_compat.seams.flat_buffers import seam as flat_buffers
from mcore_compat.seams.flat_buffers._aliasing import require_in_place
from mcore_compat.seams.model import unwrap


@dataclass(frozen=True)
class MemoryBuffer:
    """Flat storage of parameters.

    Attributes:
        chunk: Number of the model chunk.
        data: 1-D, all parameters and the padding between them.
        views: Name in the innermost module to a view of ``data`` in the parameter's shape: the parameter itself, not a
            copy. In the order of the buffer.
        buckets: (start, end) in elements, padding included.
        expert: Whether it holds experts.
    """

    chunk: int
    data: torch.Tensor
    views: Mapping[str, torch.Tensor]
    buckets: tuple[tuple[int, int], ...]
    expert: bool = False


@dataclass(frozen=True)
class _Held:
    """Where parameters of one type lie, or are to lie."""

    starts: Mapping[torch.nn.Parameter, int]
    buckets: tuple[tuple[int, int], ...]
    data: torch.Tensor
    expert: bool


_held: WeakKeyDictionary[Any, list[_Held]] = WeakKeyDictionary()


def memory_buffers(chunks: Sequence[Any]) -> list[MemoryBuffer]:
    """The flat parameter storage of wrapped chunks, as named views without a copy.

    With the distributed optimizer of 0.6 and later this is Megatron's own buffer. Elsewhere they lie anywhere, and the
    first call then makes the storage, in the order and with the padding of the gradient buffer, and moves there every
    tensor of this process that lies in a parameter's old storage: the parameters, and the slices of them that an
    optimizer holds. Call it between steps, before or after the optimizer is built. Views stay valid through steps,
    gathers, offload and reload.

    Args:
        chunks: From :func:`mcore_compat.wrap_data_parallel`.

    Raises:
        ConfigError: These are no wrapped chunks.
        StaleParameter: Somebody has bound a parameter to other storage since the buffer was made.
    """
    require_chunks(chunks, wrapped=True)
    return [buffer for index, chunk in enumerate(chunks) for buffer in _of_chunk(index, chunk)]


def _of_chunk(index: int, chunk: Any) -> Iterator[MemoryBuffer]:
    names = {parameter: name for name, parameter in unwrap(chunk).named_parameters()}
    if chunk not in _held:
        _held[chunk] = list(_hold(chunk))
    for held in _held[chunk]:
        size = held.data.element_size()
        require_in_place((names[p], p, held.data, start * size) for p, start in held.starts.items())
        views = {names[p]: _slice(held.data, p, start) for p, start in held.starts.items()}
        yield MemoryBuffer(index, held.data, views, held.buckets, held.expert)


def _hold(chunk: Any) -> Iterator[_Held]:
    buffered: set[torch.nn.Parameter] = set()
    for buffer in flat_buffers.bind()(chunk):
        buffered.update(buffer.places)
        starts = {parameter: start for parameter, (start, _, _) in buffer.places.items()}
        if buffer.parameters is not None:
            yield _Held(starts, tuple(buffer.buckets), buffer.parameters, buffer.expert)
        elif len(_types(starts)) == 1:
            yield _moved(starts, tuple(buffer.buckets), buffer.expert)
        else:
            yield from _packed(starts, buffer.expert)
    yield from _packed([p for p in chunk.parameters() if p.requires_grad and p not in buffered], expert=True)


def _types(parameters: Iterable[torch.nn.Parameter]) -> list[torch.dtype]:
    return list(dict.fromkeys(parameter.dtype for parameter in parameters))


def _packed(parameters: Iterable[torch.nn.Parameter], expert: bool) -> Iterator[_Held]:
    """One storage without gaps per type: what has no buffer, or shares a gradient buffer with another type."""
    parameters = list(parameters)
    for dtype in _types(parameters):
        starts, end = {}, 0
        for parameter in parameters:
            if parameter.dtype == dtype:
                starts[parameter], end = end, end + parameter.numel()
        yield _moved(starts, ((0, end),), expert)


def _moved(starts: Mapping[torch.nn.Parameter, int], buckets: tuple[tuple[int, int], ...], expert: bool) -> _Held:
    first = next(iter(starts))
    data = torch.zeros(buckets[-1][1], dtype=first.dtype, device=first.device)
    for parameter, start in starts.items():
        _slice(data, parameter, start).copy_(parameter.detach())
    _rebind(starts, data)
    return _Held(starts, buckets, data, expert)


@torch.no_grad()
def _rebind(starts: Mapping[torch.nn.Parameter, int], data: torch.Tensor) -> None:
    """Let every tensor that lies in a parameter's storage lie at the same place of its slice of ``data``."""
    homes: dict[int, list[tuple[int, int, int]]] = {}
    for parameter, start in starts.items():
        offset = int(parameter.storage_offset())
        home = homes.setdefault(parameter.untyped_storage().data_ptr(), [])
        home.append((offset, offset + parameter.numel(), start))
    for tensor in _alive(data):
        for first, stop, start in homes.get(tensor.untyped_storage().data_ptr(), ()):
            if first <= tensor.storage_offset() < stop:
                place = start + tensor.storage_offset() - first
                tensor.data = data.as_strided(tensor.shape, tensor.stride(), place)
                break


def _alive(like: torch.Tensor) -> list[torch.Tensor]:
    """Every tensor of this process with the same type and device."""
    # By type(): isinstance() would wake up the lazy proxies that other packages keep.
    tensors = [item for item in gc.get_objects() if issubclass(type(item), torch.Tensor)]
    dense = [tensor for tensor in tensors if tensor.layout == torch.strided and tensor.device == like.device]
    return [tensor for tensor in dense if tensor.dtype == like.dtype]


def _slice(data: torch.Tensor, parameter: torch.nn.Parameter, start: int) -> torch.Tensor:
    return data[start : start + parameter.numel()].view(parameter.shape)
