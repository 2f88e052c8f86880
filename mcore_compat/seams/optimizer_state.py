"""What an optimizer remembers from step to step, read and written in one form whoever built it.

Torch's Adam counts steps per parameter, those of Apex and Transformer Engine per group, the stand-ins do both; all keep
their moments beside the tensor that they update.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch

from mcore_compat.runtime.device import device
from mcore_compat.seams.optimizer._pieces import Piece as Piece
from mcore_compat.seams.optimizer._pieces import members, pieces

if TYPE_CHECKING:
    from mcore_compat.seams.optimizer import Optimizer

_MOMENTS = {"adam": ("exp_avg", "exp_avg_sq"), "sgd": ("momentum_buffer",)}
_TORCH_ADAM = (torch.optim.Adam, torch.optim.AdamW)


class OptimizerState:
    """The state of one optimizer on this rank.

    Args:
        optimizer: From :func:`mcore_compat.build_optimizer`.

    Attributes:
        pieces: What is updated here.
        moments: Names of the tensors that are kept per piece.
    """

    def __init__(self, optimizer: Optimizer) -> None:
        self._optimizer = optimizer
        self._members = [one for one in members(optimizer.inner) if getattr(one, "optimizer", None) is not None]
        self.pieces: tuple[Piece, ...] = tuple(pieces(optimizer.inner))
        self.moments: tuple[str, ...] = _MOMENTS[optimizer.settings.optimizer]
        self._home = {id(main): place for *place, main in self._mains()}

    def moment(self, piece: Piece, name: str) -> torch.Tensor:
        """One moment of a piece, fp32, in the piece's shape; zeros before the first step."""
        inner, _ = self._home[id(piece.main)]
        found = inner.state.get(piece.main, {}).get(name)
        return torch.zeros_like(piece.main) if found is None else found.detach()

    @torch.no_grad()
    def restore(self, piece: Piece, moments: Mapping[str, torch.Tensor], step: int) -> None:
        """Write the moments of a piece (any shape of its size), and how many steps they come from."""
        inner, group = self._home[id(piece.main)]
        state = inner.state[piece.main]
        for name, value in moments.items():
            if state.get(name) is None:
                state[name] = torch.zeros_like(piece.main)
            state[name].copy_(value.view_as(piece.main))
        if isinstance(inner, _TORCH_ADAM):
            on_device = group.get("fused") or group.get("capturable")
            place = piece.main.device if on_device else torch.device("cpu")
            state["step"] = torch.tensor(float(step), dtype=torch.float32, device=place)

    @property
    def step(self) -> int:
        """Updates done so far, as this rank's pieces know; 0 for SGD, which does not count."""
        counts = [inner.state.get(main, {}).get("step", group.get("step", 0)) for inner, group, main in self._mains()]
        return max((int(count) for count in counts), default=0)

    @step.setter
    def step(self, count: int) -> None:
        for inner, group, _ in self._mains():
            if "step" in group or (self._optimizer.settings.optimizer == "adam" and not isinstance(inner, _TORCH_ADAM)):
                group["step"] = torch.full_like(group["step"], count) if torch.is_tensor(group.get("step")) else count

    @property
    def lr(self) -> float:
        """Learning rate of a parameter without multiplier."""
        rates = {group.get("lr_mult", 1.0): float(group["lr"]) for group in self._optimizer.param_groups}
        multiplier = 1.0 if 1.0 in rates else max(rates, default=0.0)
        return rates[multiplier] / multiplier if multiplier else self._optimizer.settings.lr

    @lr.setter
    def lr(self, rate: float) -> None:
        self._optimizer.set_lr(rate)

    @property
    def loss_scale(self) -> dict[str, float]:
        """State of a dynamic loss scale under upstream's names; empty where there is none."""
        scalers = [scaler for one in self._members if (scaler := getattr(one, "grad_scaler", None)) is not None]
        return {name: float(value) for name, value in scalers[0].state_dict().items()} if scalers else {}

    @loss_scale.setter
    def loss_scale(self, state: Mapping[str, float]) -> None:
        counters = {name: int(value) for name, value in state.items() if name != "scale"}
        for one in self._members:
            scaler = getattr(one, "grad_scaler", None)
            if state and scaler is not None and scaler.state_dict():
                scale = torch.tensor([state["scale"]], dtype=torch.float32, device=device())
                scaler.load_state_dict({"scale": scale, **counters})

    def _mains(self) -> Iterator[tuple[Any, dict[str, Any], torch.Tensor]]:
        """Torch's optimizer, its group, and a tensor that it updates."""
        for one in self._members:
            inner = getattr(one, "optimizer", one)
            for group in inner.param_groups:
                yield from ((inner, group, main) for main in group["params"])
