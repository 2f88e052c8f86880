"""Whole tensors → the parts of this rank. Everything is compared before anything is written."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import safe_open

from mcore_compat.checkpoint.gather import MAIN
from mcore_compat.checkpoint.places import Place, places
from mcore_compat.checkpoint.ranks import gathered
from mcore_compat.errors import CheckpointError
from mcore_compat.seams.optimizer_state import OptimizerState

if TYPE_CHECKING:
    from types import TracebackType

    from mcore_compat.checkpoint.train_state import TrainState
    from mcore_compat.contracts import Groups


class TensorFiles(AbstractContextManager["TensorFiles"]):
    """Safetensors files whose tensors are read where asked for, and only as much of them as asked for."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._open = ExitStack()
        self._home: dict[str, Any] = {}
        for path in paths:
            file = self._open.enter_context(safe_open(path, framework="pt"))
            self._home.update(dict.fromkeys(file.keys(), file))

    @property
    def names(self) -> frozenset[str]:
        """Names of all tensors."""
        return frozenset(self._home)

    def shape(self, name: str) -> tuple[int, ...]:
        """Return a tensor's shape without reading it."""
        return tuple(self._home[name].get_slice(name).get_shape())

    def read(self, name: str, place: Place, here: Groups) -> torch.Tensor:
        """Return this rank's part."""
        slices = self._home[name].get_slice(name)
        return place.part(slices.__getitem__, slices.get_shape(), here.tp.rank, here.tp.size)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()


class Filler:
    """Restores one model.

    Args:
        role: Its name in the checkpoint.
        state: The model.
        here: Groups of the layout it was built in.
        weights: Of the model.
        optimizer: Its optimizer's state; ``None``: leave the optimizer fresh.
    """

    def __init__(
        self, role: str, state: TrainState, here: Groups, weights: TensorFiles, optimizer: TensorFiles | None
    ) -> None:
        self._role, self._here, self._vocab_size = role, here, state.vocab_size
        self._weights, self._moments = weights, optimizer
        self._places = places(state.chunks, here)
        self._optimizer = None if state.optimizer is None else OptimizerState(state.optimizer)

    @property
    def has_moments(self) -> bool:
        """Whether the optimizer goes on where it was."""
        return self._moments is not None

    def check(self) -> None:
        """Compare names and shapes; all ranks call.

        Raises:
            CheckpointError: Names a tensor that is missing or left over, or one of another shape.
        """
        self._check(self._weights, {place.name: place for place in self._places})
        if self._moments is not None:
            self._check(self._moments, self._wanted_moments())

    def fill(self, step: int) -> None:
        """Copy everything into the memory that is there.

        Args:
            step: Updates that the moments come from; without moments the optimizer starts at 0.
        """
        for place in self._places:
            place.parameter.data.copy_(self._value(place))
        state = self._optimizer
        if state is None:
            return
        by_parameter = {id(place.parameter): place for place in self._places}
        for piece in state.pieces:
            place, (start, stop) = by_parameter[id(piece.parameter)], piece.range
            if piece.is_copy:
                piece.main.data.copy_(self._value(place).reshape(-1)[start:stop].view_as(piece.main))
            moments = {name: self._moment(place, name).reshape(-1)[start:stop] for name in state.moments}
            state.restore(piece, moments, step if self._moments else 0)
        state.step = step if self._moments else 0

    def _value(self, place: Place) -> torch.Tensor:
        """The parameter as exactly as the checkpoint knows it."""
        main = f"{place.name}.{MAIN}"
        if self._moments is not None and main in self._moments.names:
            return self._moments.read(main, place, self._here)
        return self._weights.read(place.name, place, self._here)

    def _moment(self, place: Place, name: str) -> torch.Tensor:
        if self._moments is None:
            return torch.zeros(place.parameter.shape)
        return self._moments.read(f"{place.name}.{name}", place, self._here)

    def _wanted_moments(self) -> dict[str, Place]:
        names = () if self._optimizer is None else self._optimizer.moments
        trained = [place for place in self._places if place.parameter.requires_grad]
        return {f"{place.name}.{name}": place for place in trained for name in names}

    def _check(self, files: TensorFiles, wanted: dict[str, Place]) -> None:
        known = {name for names in gathered(set(wanted)) for name in names}
        problems = [
            *(f"{name} is missing" for name in sorted(wanted.keys() - files.names)),
            *(f"the model has no {name}" for name in sorted(files.names - known) if not name.endswith(f".{MAIN}")),
        ]
        for name in wanted.keys() & files.names:
            found, expected = files.shape(name), wanted[name].whole_shape(self._here.tp.size, self._vocab_size)
            if found != expected:
                problems.append(f"{name} has shape {found}, the model needs {expected}")
        if problems:
            more = f" and {len(problems) - 1} more" if len(problems) > 1 else ""
            raise CheckpointError(f"{self._role}: {problems[0]}{more}", hint="build the model that was saved")
