"""Save, build anew, load, and go on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from mcore_compat.checkpoint import TrainState, load, save
from mcore_compat.detect import find
from mcore_compat.seams.optimizer_state import OptimizerState
from tests.checkpoint.programs import RATE, Pair, build, states, update
from tests.contract.programs.t0 import enter


@dataclass
class Rising:
    """A learning rate that rises step by step."""

    optimizer: Any
    steps: int = 0

    def step(self) -> None:
        self.steps += 1
        self.optimizer.set_lr(RATE * self.steps / 4)

    def state_dict(self) -> dict[str, Any]:
        return {"steps": self.steps}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.steps = state_dict["steps"]


class Models:
    """Actor and critic, sharded over all ranks, each with its schedule."""

    def __init__(self, precision: str) -> None:
        self.pair = build(precision)
        self.schedules = {role: Rising(trainee.optimizer) for role, trainee in self.pair.items()}

    def states(self) -> dict[str, TrainState]:
        return {role: replace(state, scheduler=self.schedules[role]) for role, state in states(self.pair).items()}

    def update(self) -> None:
        for schedule in self.schedules.values():
            schedule.step()
        update(self.pair)


def resume(steps: dict[str, Any], folder: Path) -> dict[str, Any]:
    """What differs between going on and resuming, by precision."""
    enter()
    root = folder.parent / f"checkpoints-{find().version}-{dist.get_world_size()}"
    return {precision: _resume(precision, root / precision) for precision in ("fp32", "bf16", "fp16")}


def _resume(precision: str, root: Path) -> dict[str, Any]:
    models = Models(precision)
    for _ in range(2):
        models.update()
    save(root, models.states(), step=2)
    before, drawn = _remembered(models.pair), torch.rand(3)
    models.update()
    others = Models(precision)
    restored = load(root, others.states())
    same_draw = torch.equal(torch.rand(3), drawn)
    loaded = _remembered(others.pair)
    others.update()
    return {
        "loaded": _differing(before, loaded),
        "next step": _differing(_remembered(models.pair), _remembered(others.pair)),
        "compared": len(loaded),
        "steps": [OptimizerState(trainee.optimizer).step for trainee in others.pair.values()],
        "schedules": [schedule.steps for schedule in others.schedules.values()],
        "restored": restored.step,
        "same draw": same_draw,
        "release": restored.megatron == find().version,
    }


def _remembered(pair: Pair) -> dict[str, torch.Tensor]:
    """Weights, main parameters, moments, counts and scales of this rank."""
    found = {}
    for role, trainee in pair.items():
        state = OptimizerState(trainee.optimizer)
        found |= {f"{role} {name}": parameter for name, parameter in trainee.parameters().items()}
        counted = {"steps": state.step, **state.loss_scale}
        found |= {f"{role} {name}": torch.tensor(float(count)) for name, count in counted.items()}
        for number, piece in enumerate(state.pieces):
            found[f"{role} main {number}"] = piece.main
            found |= {f"{role} {name} {number}": state.moment(piece, name) for name in state.moments}
    return {name: tensor.detach().clone() for name, tensor in found.items()}


def _differing(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> list[str]:
    return [name for name, tensor in one.items() if not torch.equal(tensor, other[name])]
