"""What ranks do in the tests of checkpoints: train an actor and a critic of T0's kind, save and resume them."""

from __future__ import annotations

import sys
import warnings
from dataclasses import replace
from typing import Any

import mcore_compat
from mcore_compat import CheckpointError
from mcore_compat.checkpoint import TrainState, load, save
from tests.contract.programs.t0 import DISTRIBUTED, UNSHARDED, Job, Rows, Trainee, eight_rows, enter, values

MICRO = 2
RATE = 0.08  # not the one that a fresh optimizer has
STATE = {"note": "1e-3", "number": 0.1, "list": [1, None]}
Pair = dict[str, Trainee]


def carry_out(tasks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Do each task in its layout: build both models, load ``source``, do ``updates``, save to ``target``."""
    warnings.simplefilter("ignore")  # what upstream says of itself
    mcore_compat.prepare("cpu")
    return [_carry_out(**task) for task in tasks]


def _carry_out(
    sizes: dict[str, int],
    target: str = "",
    source: str = "",
    updates: int = 0,
    precision: Any = "fp32",
    sharded: bool = True,
    layers: int = 2,
    fresh: tuple[str, ...] = (),
) -> dict[str, Any]:
    enter(**sizes)
    pair = build(precision, sharded, layers)
    for trainee in () if source else pair.values():
        trainee.optimizer.set_lr(RATE)
    report: dict[str, Any] = {"warnings": [], "step": 0}
    if source:
        report |= _load(pair, source, fresh)
    for _ in range(updates):
        update(pair)
    if target:
        save(target, states(pair), step=report["step"] + updates, state=STATE)
    return report


def _load(pair: Pair, source: str, fresh: tuple[str, ...]) -> dict[str, Any]:
    unpickled: list[Any] = []
    sys.addaudithook(lambda event, details: unpickled.append(details) if event == "pickle.find_class" else None)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        try:
            found = load(source, states(pair), fresh_optimizer=fresh)
        except CheckpointError as error:
            return {"error": str(error), "changed": [trainee.changed() for trainee in pair.values()]}
    said = [
        str(warning.message) for warning in heard if "mcore_compat" in warning.filename or "tests" in warning.filename
    ]
    return {
        "step": found.step,
        "state": found.state,
        "same layout": found.same_layout,
        "warnings": said,
        "unpickled": len(unpickled),
    }


def build(precision: Any = "fp32", sharded: bool = True, layers: int = 2) -> Pair:
    """A language model with a tied embedding, and a critic."""
    actor = Job(layers, precision=precision, data_parallel=DISTRIBUTED if sharded else UNSHARDED)
    return {"actor": Trainee(actor), "critic": Trainee(replace(actor, head="value"))}


def states(pair: Pair) -> dict[str, TrainState]:
    """What is saved."""
    return {role: TrainState(trainee.chunks, trainee.optimizer) for role, trainee in pair.items()}


def update(pair: Pair) -> None:
    """One step of each model on the same data as ever."""
    batches: dict[str, Rows] = {"actor": eight_rows(), "critic": values()}
    for role, trainee in pair.items():
        trainee.train(batches[role], MICRO)
