"""Model and optimizer of all ranks → whole tensors, one at a time, on one rank of each pipeline stage."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from mcore_compat.checkpoint.places import Place, places
from mcore_compat.checkpoint.ranks import gathered
from mcore_compat.errors import CheckpointError
from mcore_compat.seams.optimizer_state import OptimizerState, Piece

if TYPE_CHECKING:
    from mcore_compat.checkpoint.train_state import TrainState
    from mcore_compat.contracts import Groups

MAIN = "main"
Tensors = Iterator[tuple[str, torch.Tensor]]
# name of a parameter -> which rank of the data-parallel group has which elements
Owners = Mapping[str, Sequence[tuple[int, int, int]]]


def kept(place: Place, moments: tuple[str, ...]) -> tuple[str, ...]:
    """What is saved of a parameter's optimizer state; fp32 parameters are their own main copies."""
    return moments if place.parameter.dtype == torch.float32 else (MAIN, *moments)


class Gatherer:
    """Streams a model. Every rank iterates; tensors come out on :attr:`is_writer` ranks only.

    Args:
        state: The model; an overlapped parameter gather must have been waited for.
        here: Groups of the layout it was built in.
    """

    def __init__(self, state: TrainState, here: Groups) -> None:
        self._here, self._vocab_size = here, state.vocab_size
        self._places = [place for place in places(state.chunks, here) if not place.is_copy]
        self._optimizer = None if state.optimizer is None else OptimizerState(state.optimizer)

    @property
    def is_writer(self) -> bool:
        """Whether tensors come out here."""
        return self._here.dp_cp.rank == 0 and self._here.tp.rank == 0

    def weights(self) -> Tensors:
        """Yield name and whole parameter, in the parameter's type."""
        for place in self._places:
            if self._here.dp_cp.rank == 0:
                yield from self._whole(place, place.name, place.parameter.detach())

    def optimizer(self) -> Tensors:
        """Yield ``name.main`` and ``name.<moment>``, all fp32 and in the shape of the whole parameter.

        Raises:
            CheckpointError: Some elements of a parameter are updated by nobody.
        """
        state = self._optimizer
        if state is None:
            return
        by_parameter: dict[int, list[Piece]] = {}
        for piece in state.pieces:
            by_parameter.setdefault(id(piece.parameter), []).append(piece)
        mine = {place.name: by_parameter.get(id(place.parameter), []) for place in self._places}
        owners = self._owners(mine)
        for place in self._places:
            for kind in kept(place, state.moments) if place.name in owners else ():
                values = {
                    piece.range: piece.main.detach() if kind == MAIN else state.moment(piece, kind)
                    for piece in mine[place.name]
                }
                local = self._complete(place, values, owners[place.name])
                if self._here.dp_cp.rank == 0:
                    yield from self._whole(place, f"{place.name}.{kind}", local)

    def _owners(self, mine: Mapping[str, Sequence[Piece]]) -> Owners:
        """Who sends which elements: of replicas the first one."""
        ranges = {name: [piece.range for piece in found] for name, found in mine.items()}
        first: dict[str, dict[tuple[int, int], int]] = {}
        for rank, theirs in enumerate(gathered(ranges, self._here.dp_cp)):
            for name, bounds in ((name, bounds) for name, found in theirs.items() for bounds in found):
                first.setdefault(name, {}).setdefault(bounds, rank)
        for place in self._places:
            if place.name in first:
                _require_all_elements(place, sorted(first[place.name]))
        return {name: [(rank, *bounds) for bounds, rank in found.items()] for name, found in first.items()}

    def _complete(
        self, place: Place, values: Mapping[tuple[int, int], torch.Tensor], owners: Sequence[tuple[int, int, int]]
    ) -> torch.Tensor:
        """This tensor-parallel rank's part with the shards of all data-parallel ranks, on the first of them."""
        group = self._here.dp_cp
        local = torch.zeros(place.parameter.numel(), dtype=torch.float32, device=place.parameter.device)
        for rank, *bounds in owners:
            if rank == group.rank:
                local[slice(*bounds)] = values[bounds[0], bounds[1]].reshape(-1)
        if any(rank for rank, *_ in owners):
            # As integers: adding 0.0 would make 0.0 of -0.0.
            dist.reduce(local.view(torch.int32), dst=group.ranks[0], group=group.handle)
        return local.view(place.parameter.shape)

    def _whole(self, place: Place, name: str, local: torch.Tensor) -> Tensors:
        tp, parts = self._here.tp, [local]
        if place.dimension is not None and tp.size > 1:
            parts = [torch.empty_like(local) for _ in range(tp.size)]
            dist.all_gather(parts, local.contiguous(), group=tp.handle)
        if tp.rank == 0:
            yield name, place.join(parts, self._vocab_size).cpu().contiguous()


def _require_all_elements(place: Place, ranges: Sequence[tuple[int, int]]) -> None:
    ends = [0, *(stop for _, stop in ranges)]
    starts = [*(start for start, _ in ranges), place.parameter.numel()]
    if starts != ends:
        raise CheckpointError(
            f"optimizer state of {place.name}: the ranks hold the elements {list(ranges)}, "
            f"expected each of the {place.parameter.numel()} once",
            hint="every rank of the data-parallel group must save at the same point",
        )
