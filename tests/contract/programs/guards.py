"""Weights that a framework bound to a buffer of its own, and steps that change nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

import mcore_compat
from mcore_compat import OptimizerSettings, UpdateGuard
from mcore_compat.contracts import DataParallelSettings
from mcore_compat.errors import McoreCompatError
from tests.contract.programs.t0 import DISTRIBUTED, UNSHARDED, Job, Trainee, enter, two_batches

FAST = OptimizerSettings(lr=1e-2, weight_decay=0.0, clip_grad=0.0)
KINDS = {"distributed": DISTRIBUTED, "plain": UNSHARDED}


def rebound(steps: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Two steps after the parameters were bound to slices of one flat tensor (case C01), and of memory_buffers."""
    enter()
    return {
        f"{precision} {kind} {way.__name__.strip('_')}": _two_steps(_job(precision, settings), way)
        for precision in ("fp32", "bf16")
        for kind, settings in KINDS.items()
        for way in (_untouched, _bound_to_own_buffer, _bound_to_memory_buffers)
    }


def frozen(steps: dict[str, Any], folder: Path) -> dict[str, Any]:
    """What the guard says of steps on upstream's optimizer that change all, nothing, and a part."""
    enter()
    return {
        "fine": _guarded(lambda trainee: None),
        "rate zero": _guarded(lambda trainee: trainee.optimizer.set_lr(0.0)),
        "other tensors": _guarded(_update_copies),
        "no gradients": _guarded(lambda trainee: mcore_compat.zero_grad(trainee.chunks, trainee.optimizer)),
    }


def _job(precision: Any, settings: DataParallelSettings) -> Job:
    return Job(precision=precision, data_parallel=settings, settings=FAST)


def _untouched(trainee: Trainee) -> None:
    pass


def _bound_to_own_buffer(trainee: Trainee) -> None:
    parameters = list(trainee.parameters().values())
    flat = torch.empty(sum(p.numel() for p in parameters), dtype=parameters[0].dtype)
    start = 0
    for parameter in parameters:
        place = flat[start : start + parameter.numel()].view(parameter.shape)
        place.copy_(parameter.detach())
        parameter.data = place
        start += parameter.numel()


def _bound_to_memory_buffers(trainee: Trainee) -> None:
    [buffer] = mcore_compat.memory_buffers(trainee.chunks)
    names = dict(trainee.parameters())
    assert buffer.views.keys() == names.keys()
    for name, parameter in names.items():
        parameter.data = buffer.views[name]


def _two_steps(job: Job, bind: Any) -> dict[str, Any]:
    trainee = Trainee(job)
    bind(trainee)
    done = 0
    try:
        for _ in range(2):
            trainee.train(two_batches(), 2)
            done += 1
    except McoreCompatError as error:
        return {"steps": done, "error": type(error).__name__, "text": str(error)}
    digest = {name: p.double().sum().item() for name, p in trainee.parameters().items()}
    return {"steps": done, "error": "", "changed": trainee.changed(), "parameters": len(digest), "digest": digest}


def _guarded(spoil: Any) -> str:
    trainee = Trainee(_job("fp32", UNSHARDED))
    trainee.accumulate(two_batches(), 2)
    spoil(trainee)
    upstream = trainee.optimizer.inner
    guard = UpdateGuard(trainee.chunks, upstream).install()
    try:
        upstream.step()
    except McoreCompatError as error:
        return f"{type(error).__name__}: {error}"
    finally:
        guard.remove()
    return ""


def _update_copies(trainee: Trainee) -> None:
    """As an optimizer that was built from a copy of the model, for one of its groups."""
    upstream = trainee.optimizer.inner
    group = getattr(upstream, "optimizer", upstream).param_groups[0]
    step = upstream.step

    def elsewhere() -> Any:
        kept = [parameter.detach().clone() for parameter in group["params"]]
        result = step()
        for parameter, values in zip(group["params"], kept, strict=True):
            parameter.data.copy_(values)
        return result

    upstream.step = elsewhere
