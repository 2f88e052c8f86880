"""Checks on two ranks; every section takes up a layout of its own in the same processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

import mcore_compat
from mcore_compat import DataParallelSettings, Groups, LossTerm, McoreCompatError
from mcore_compat.contracts import Batch
from tests.contract.programs.t0 import (
    DISTRIBUTED,
    LENGTH,
    OVERLAPPED,
    SMOOTH,
    Job,
    Trainee,
    bare_model,
    buckets,
    compare,
    eight_rows,
    enter,
)
from tests.contract.programs.toy import Toy, errors, expected_gradients, summed, wrapped


def layouts(steps: dict[str, Any], folder: Path) -> list[dict[str, Any]]:
    """Three layouts one after the other, and the groups each of them made."""
    return [described(enter(**sizes)) for sizes in ({"tp": 2}, {"pp": 2}, {}, {"cp": 2}, {"tp": 2})]


def data_parallel(steps: dict[str, Any], folder: Path) -> list[dict[str, Any]]:
    """The eight rows over two data-parallel ranks."""
    enter()
    kinds = [DataParallelSettings(), DISTRIBUTED, OVERLAPPED, replace(DISTRIBUTED, overlap_grad_reduce=True)]
    cuts = [(micro, kinds[0]) for micro in (1, 2, 4)] + [(2, kind) for kind in kinds[1:]]
    return [compare("eight rows", micro, steps, data_parallel=kind) for micro, kind in cuts]


def averaged_in_collective(steps: dict[str, Any], folder: Path) -> list[dict[str, Any]]:
    """The same where the collective takes the mean."""
    enter()
    kinds = [replace(kind, average_in_collective=True) for kind in (DataParallelSettings(), DISTRIBUTED)]
    return [compare("eight rows", 2, steps, data_parallel=kind) for kind in kinds]


def tensor_parallel(steps: dict[str, Any], folder: Path) -> dict[str, dict[str, Any]]:
    """With and without sequence parallelism, for the language model and the critic."""
    enter(tp=2)
    sequence = {"sequence_parallel": True}
    return {
        "one row": compare("eight rows", 1, steps),
        "all rows": compare("eight rows", 8, steps, data_parallel=DISTRIBUTED),
        "sequence": compare("eight rows", 4, steps, fields=sequence),
        "no initial weights": compare("eight rows", 8, steps, fields={"perform_initialization": False}),
        "critic": compare("critic", 2, steps),
        "critic, sequence": compare("critic", 2, steps, fields=sequence),
    }


def pipeline(steps: dict[str, Any], folder: Path) -> list[dict[str, Any]]:
    """The eight rows over two pipeline stages with a tied embedding."""
    enter(pp=2)
    return [compare("eight rows", micro, steps) for micro in (1, 2, 4, 8)]


def tied_refusal(steps: dict[str, Any], folder: Path) -> dict[str, Any]:
    """A tied embedding under pipeline parallelism with the distributed optimizer: the error, or "" and the step."""
    enter(pp=2)
    try:
        return {"error": "", "step": compare("two batches", 2, steps, data_parallel=DISTRIBUTED)}
    except McoreCompatError as error:
        return {"error": f"{type(error).__name__}: {error}"}


def interleaved(steps: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Two chunks on each of two stages, tied: the error, or "" and the step."""
    try:
        enter(pp=2, vpp=2)
    except McoreCompatError as error:
        return {"error": f"{type(error).__name__}: {error}"}
    return {"error": "", "step": compare("four layers", 1, steps)}


def no_sync(steps: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Collectives of one pass over the same four rows per rank, in one and in four microbatches."""
    enter()
    trainee = Trainee(Job(data_parallel=OVERLAPPED))
    return {
        "one": _collectives(lambda: trainee.accumulate(eight_rows(), 4)),
        "four": _collectives(lambda: trainee.accumulate(eight_rows(), 1)),
        "buckets": buckets(trainee.chunks),
    }


def reduction_types(steps: dict[str, Any], folder: Path) -> dict[str, str]:
    """Types of the gradients of a bf16 model, reduced in fp32 and not."""
    enter()
    found = {}
    for in_fp32 in (True, False):
        job = Job(precision="bf16")
        chunks = mcore_compat.wrap_data_parallel(
            bare_model(job), settings=DataParallelSettings(grad_reduce_in_fp32=in_fp32)
        )
        found[str(in_fp32)] = str(next(chunks[0].parameters()).main_grad.dtype)
    return found


def context_parallel(steps: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Each rank takes one half of every sequence; one of them has many more valid tokens."""
    here = enter(cp=2)
    batch, half = eight_rows(), LENGTH // 2
    mine = slice(here.cp.rank * half, (here.cp.rank + 1) * half)
    microbatches = [{name: rows[cut : cut + 4] for name, rows in batch.items()} for cut in (0, 4)]

    def forward(model: Any, microbatch: Batch) -> torch.Tensor:
        output: torch.Tensor = model(microbatch["tokens"][:, mine])
        return output

    def loss(output: torch.Tensor, microbatch: Batch) -> LossTerm:
        return summed(output, microbatch["tokens"][:, mine], microbatch["mask"][:, mine])

    expected = expected_gradients(batch)
    plain = wrapped(Toy)
    result = mcore_compat.forward_backward(plain, microbatches, loss, forward=forward)
    return {
        "count": result.count,
        "loss": result.loss,
        "gradients": errors({name: p.main_grad for name, p in _parameters(plain)}, expected),
        "sharded update": _sharded_update(expected, microbatches, loss, forward),
    }


def experts(steps: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The expert groups of two data-parallel ranks that hold different experts."""
    return described(enter(ep=2))


def _sharded_update(expected: dict[str, torch.Tensor], microbatches: Any, loss: Any, forward: Any) -> dict[str, float]:
    """Each rank updates its shard with the gradients it got; compared with Adam's first step written out."""
    chunks = wrapped(Toy, use_distributed_optimizer=True)
    optimizer = mcore_compat.build_optimizer(SMOOTH, chunks, DISTRIBUTED)
    moves = {name: SMOOTH.lr * g / (g.abs() + SMOOTH.eps) for name, g in expected.items()}
    updated = {name: parameter.detach() - moves[name] for name, parameter in _parameters(chunks)}
    mcore_compat.forward_backward(chunks, microbatches, loss, optimizer=optimizer, forward=forward)
    optimizer.step()
    return errors({name: parameter.detach() for name, parameter in _parameters(chunks)}, updated)


def _parameters(chunks: list[Any]) -> Iterator[tuple[str, Any]]:
    parameters: Iterator[tuple[str, Any]] = mcore_compat.unwrap(chunks)[0].named_parameters()
    return parameters


def described(here: Groups) -> dict[str, Any]:
    names = ("tp", "pp", "dp", "dp_cp", "cp", "mp", "ep", "expert_dp")
    return {name: list(getattr(here, name).ranks) for name in names}


def _collectives(work: Callable[[], Any]) -> list[str]:
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        work()
    return sorted(event.name for event in profiler.events() if event.name.startswith("c10d::"))
