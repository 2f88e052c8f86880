"""Megatron model → stream of full tensors under Hugging Face names, on every rank."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from mcore_compat.errors import WeightsError
from mcore_compat.weights.modules import local_parameters
from mcore_compat.weights.names import LM_HEAD, VALUE_HEAD, Entry, body_entries, cut_dimension, local_shape
from mcore_compat.weights.tensors import join, unfuse

if TYPE_CHECKING:
    from mcore_compat.contracts import Group, Groups
    from mcore_compat.weights.architecture import Architecture

_DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


@dataclass(frozen=True)
class _Place:
    """Where an entry lives: the pipeline rank that sends it, and what the others have to make room for."""

    owner: int
    dtype: torch.dtype
    rows: int


def iter_weights(
    chunks: Sequence[Any], architecture: Architecture, groups: Groups
) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield every full tensor of the model, in the same order on all ranks of a model-parallel group.

    All of them have to consume the stream at the same pace: each tensor takes one broadcast over the pipeline
    group (of this rank's slice) and one all-gather over the tensor-parallel group.

    Args:
        chunks: Model chunks of this rank, wrapped or not.
        architecture: Of the folder that the model was built from.
        groups: Tensor- and pipeline-parallel groups.

    Yields:
        Name and a contiguous copy in the parameter's dtype and on its device. The embedding has exactly
        ``vocab_size`` rows; where it is tied, no ``lm_head.weight`` follows. A value model ends with
        ``score.weight``.

    Raises:
        WeightsError: The chunks are not a model of this architecture, or no stage holds some part of it.
    """
    parameters = local_parameters(chunks, architecture)
    entries = (*body_entries(architecture), Entry(LM_HEAD), Entry(VALUE_HEAD))
    places = _places(entries, parameters, groups.pp)
    for entry, place in zip(entries, places, strict=True):
        if place is not None:
            local = _from_owner(entry, place, parameters, architecture, groups)
            yield from _full_tensors(entry, local, architecture, groups.tp)
        elif entry.rule is not VALUE_HEAD and entry.rule is not LM_HEAD:
            raise WeightsError(f"no pipeline stage holds {entry.megatron}", hint="pass all chunks of this rank")


def _places(entries: Sequence[Entry], parameters: dict[Entry, torch.nn.Parameter], pp: Group) -> list[_Place | None]:
    """Agree, in one small all-reduce, on who holds what: layers may be split unevenly, heads may differ."""
    device = next(iter(parameters.values())).device
    mine = [_described(parameters.get(entry), pp.rank) for entry in entries]
    table = torch.tensor(mine, dtype=torch.int64, device=device)
    if pp.size > 1:
        dist.all_reduce(table, op=dist.ReduceOp.MAX, group=pp.handle)
    return [None if owner < 0 else _Place(owner, _DTYPES[code], rows) for owner, code, rows in table.tolist()]


def _described(parameter: torch.nn.Parameter | None, rank: int) -> tuple[int, int, int]:
    return (-1, -1, -1) if parameter is None else (rank, _DTYPES.index(parameter.dtype), parameter.shape[0])


def _from_owner(
    entry: Entry,
    place: _Place,
    parameters: dict[Entry, torch.nn.Parameter],
    architecture: Architecture,
    groups: Groups,
) -> torch.Tensor:
    """Return this tensor-parallel rank's slice, sent by the stage that holds it."""
    pp = groups.pp
    if place.owner == pp.rank:
        local = parameters[entry].detach()
    else:
        shape = local_shape(architecture, entry.rule, groups.tp.size, place.rows * groups.tp.size)
        local = torch.empty(shape, dtype=place.dtype, device=next(iter(parameters.values())).device)
    if pp.size > 1:
        dist.broadcast(local, src=pp.ranks[place.owner], group=pp.handle)
    return local


def _full_tensors(
    entry: Entry, local: torch.Tensor, architecture: Architecture, tp: Group
) -> Iterator[tuple[str, torch.Tensor]]:
    """Gather the slices of all tensor-parallel ranks and take the fused parameter apart."""
    dimension = cut_dimension(entry.rule)
    pieces = [local] if dimension is None or tp.size == 1 else _gathered(local, tp)
    by_rank = [unfuse(architecture, entry.rule, piece) for piece in pieces]
    for name, parts in zip(entry.hf, zip(*by_rank, strict=True), strict=True):
        full = join(parts, dimension)
        kept = full[: architecture.vocab_size] if entry.rule.cut == "vocab" else full
        yield name, kept.clone(memory_format=torch.contiguous_format)


def _gathered(local: torch.Tensor, tp: Group) -> list[torch.Tensor]:
    pieces = [torch.empty_like(local) for _ in range(tp.size)]
    dist.all_gather(pieces, local.contiguous(), group=tp.handle)
    return pieces
