"""Save, build anew, load, and go on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from mcore_compat.checkpoint import load, save
from mcore_compat.detect import find
from mcore_compat.seams.optimizer_state import OptimizerState
from tests.checkpoint.programs import RATE, Pair, build, states, update
from tests.contract.programs.t0 import enter


def resume(steps: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Actor and critic, sharded over all ranks: what differs between going on and resuming, by precision."""
    enter()
    root = folder.parent / f"checkpoints-{find().version}-{dist.get_world_size()}"
    return {precision: _resume(precision, root / precision) for precision in ("fp32", "bf16")}


def _resume(precision: str, root: Path) -> dict[str, Any]:
    pair = build(precision)
    for trainee in pair.values():
        trainee.optimizer.set_lr(RATE)
    for _ in range(2):
        update(pair)
    save(root, states(pair), step=2)
    before, drawn = _remembered(pair), torch.rand(3)
    update(pair)
    other = build(precision)
    restored = load(root, states(other))
    same_draw = torch.equal(torch.rand(3), drawn)
    loaded = _remembered(other)
    update(other)
    return {
        "loaded": _differing(before, loaded),
        "next step": _differing(_remembered(pair), _remembered(other)),
        "compared": len(loaded),
        "steps": [OptimizerState(trainee.optimizer).step for trainee in other.values()],
        "restored": restored.step,
        "same draw": same_draw,
        "release": restored.megatron == find().version,
    }


def _remembered(pair: Pair) -> dict[str, torch.Tensor]:
    """Weights, main parameters and moments of this rank."""
    found = {}
    for role, trainee in pair.items():
        state = OptimizerState(trainee.optimizer)
        found |= {f"{role} {name}": parameter for name, parameter in trainee.parameters().items()}
        for number, piece in enumerate(state.pieces):
            found[f"{role} main {number}"] = piece.main
            found |= {f"{role} {name} {number}": state.moment(piece, name) for name in state.moments}
    return {name: tensor.detach().clone() for name, tensor in found.items()}


def _differing(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> list[str]:
    return [name for name, tensor in one.items() if not torch.equal(tensor, other[name])]
