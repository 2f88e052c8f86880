"""Rows and results on their way between ranks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mcore_compat.contracts import Batch, Groups
from mcore_compat.errors import McoreCompatError, PeerLost

if TYPE_CHECKING:
    import torch


def rows_of_rank(batch: Batch, rank: int, share: int) -> Batch:
    """``share`` rows from ``rank * share`` on; rows past the end repeat the first one."""
    import torch

    rows = len(next(iter(batch.values())))
    index = torch.arange(rank * share, (rank + 1) * share)
    index[index >= rows] = 0
    return {name: tensor[index.to(tensor.device)] for name, tensor in batch.items()}


def split_rows(batch: Batch, micro_batch_size: int) -> list[Batch]:
    """The batch in microbatches, in order."""
    rows = len(next(iter(batch.values())))
    return [
        {name: tensor[start : start + micro_batch_size] for name, tensor in batch.items()}
        for start in range(0, rows, micro_batch_size)
    ]


def collect_rows(kept: Sequence[Mapping[str, torch.Tensor]], groups: Groups, rows: int) -> dict[str, torch.Tensor]:
    """Last stage's rows of this data-parallel rank -> all rows on every rank."""
    import torch
    import torch.distributed as dist

    local = {name: torch.cat([part[name] for part in kept]) for name in kept[0]} if kept else {}
    box = [{name: (tensor.shape, tensor.dtype) for name, tensor in local.items()}]
    if groups.pp.size > 1:
        dist.broadcast_object_list(box, src=groups.pp.ranks[-1], group=groups.pp.handle)
    found = {}
    for name, (shape, dtype) in box[0].items():
        tensor = local[name].contiguous() if name in local else _empty(shape, dtype)
        if groups.pp.size > 1:
            dist.broadcast(tensor, src=groups.pp.ranks[-1], group=groups.pp.handle)
        parts = [torch.empty_like(tensor) for _ in range(groups.dp.size)]
        dist.all_gather(parts, tensor, group=groups.dp.handle)
        found[name] = torch.cat(parts)[:rows]
    return found


def _empty(shape: torch.Size, dtype: torch.dtype) -> torch.Tensor:
    import torch

    from mcore_compat.runtime.device import device

    return torch.empty(shape, dtype=dtype, device=device())


class Outcome:
    """A result or an error, in a form that can travel to other ranks."""

    def __init__(self, value: Any = None, error: Exception | None = None) -> None:
        self.value = value
        self.error = error

    def __reduce__(self) -> tuple[Any, ...]:
        foreign = self.error is not None and not isinstance(self.error, McoreCompatError)
        error = PeerLost(f"another rank failed: {type(self.error).__name__}: {self.error}") if foreign else self.error
        return Outcome, (self.value, error)


def attempt(work: Callable[[], Any]) -> Outcome:
    """Do the work; an error becomes a value."""
    try:
        return Outcome(value=work())
    except Exception as error:  # crosses ranks as a value, and is raised on all of them
        return Outcome(error=error)


def result(outcome: Outcome | None) -> Any:
    """What the work returned, or its error raised."""
    assert outcome is not None, "some rank has always done the work"
    if outcome.error is not None:
        raise outcome.error
    return outcome.value
