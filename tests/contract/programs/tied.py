"""A tied embedding on four ranks: two pipeline stages, two data-parallel copies of each."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

from mcore_compat import DataParallelSettings, McoreCompatError
from tests.contract.programs.layouts import described
from tests.contract.programs.t0 import DISTRIBUTED, UNSHARDED, Job, Trainee, compare, enter, two_batches
from tests.contract.programs.toy import refusal

EMBEDDING = "embedding.word_embeddings.weight"


def step(steps: dict[str, Any], folder: Path) -> dict[str, Any]:
    """One step with each kind of optimizer, each data-parallel rank with a batch of its own: the error, or ""."""
    enter(pp=2)
    return {"plain": _right_or_refused(UNSHARDED, steps), "distributed": _right_or_refused(DISTRIBUTED, steps)}


def copies(steps: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The copies of the embedding after two steps, then the step after one of them was touched."""
    here = enter(pp=2)
    trainee = Trainee(Job())
    for _ in range(2):
        trainee.train(two_batches(), 2)
    weight = trainee.parameters()[EMBEDDING]
    digest = hashlib.sha256(weight.detach().numpy().tobytes()).hexdigest()
    trainee.accumulate(two_batches(), 2)
    if here.is_last_stage:
        weight.data[3, 5] += 1e-3
    return {"digest": digest, "error": refusal(trainee.optimizer.step)}


def interleaved(steps: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Two chunks per stage, sharded optimizer, reduction and gather overlapped: the error, or "" and the step."""
    overlapped = replace(DISTRIBUTED, overlap_grad_reduce=True, overlap_param_gather=True)
    try:
        enter(pp=2, vpp=2)
    except McoreCompatError as error:
        return {"error": f"{type(error).__name__}: {error}"}
    return {"error": "", "step": compare("four layers", 1, steps, data_parallel=overlapped)}


def experts(steps: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The groups of two experts, beside data and beside tensor parallelism."""
    return {"dp": described(enter(ep=2)), "tp": described(enter(tp=2, ep=2))}


def _right_or_refused(kind: DataParallelSettings, steps: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"error": "", "step": compare("two batches", 2, steps, data_parallel=kind)}
    except McoreCompatError as error:
        return {"error": f"{type(error).__name__}: {error}"}
