"""Axis: who gathers updated parameters when that overlaps with the next forward, and so who can be waited for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol
from weakref import ReferenceType, WeakKeyDictionary, ref

from mcore_compat.seams._registry import Seam


class ParamSync(NamedTuple):
    """What callers do about an overlapped gather.

    Attributes:
        finish: (wrapped chunks, upstream's optimizer) -> None, after which every rank holds the updated parameters.
        hooks: The same arguments -> one ``param_sync_func`` per chunk for the interleaved schedule, or none where the
            schedule has nothing to start.
    """

    finish: Callable[[Sequence[Any], Any], None]
    hooks: Callable[[Sequence[Any], Any], list[Callable[..., None]]]


seam: Seam[Callable[[], ParamSync]] = Seam("param_sync")
WRAPPER_GATHERS = "megatron.core.distributed.distributed_data_parallel:DistributedDataParallel.start_param_sync"


class _Settles(Protocol):
    def finish_param_sync(self) -> None: ...


_optimizers: WeakKeyDictionary[Any, ReferenceType[_Settles]] = WeakKeyDictionary()


def settled_by(chunks: Sequence[Any], optimizer: _Settles) -> None:
    """Note whom to ask before these chunks are read."""
    _optimizers.update({chunk: ref(optimizer) for chunk in chunks})


def finish_pending(chunks: Sequence[Any]) -> None:
    """Wait until the chunks hold the values of the last step on every data-parallel rank; all of them have to call."""
    asked = {id(found): found for chunk in chunks if chunk in _optimizers and (found := _optimizers[chunk]())}
    for optimizer in asked.values():
        optimizer.finish_param_sync()
