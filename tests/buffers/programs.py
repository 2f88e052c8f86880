"""What runs in one process with one release in front; importing torch and Megatron takes longer than all of it."""

from __future__ import annotations

import warnings
from typing import Any

import torch
import torch.distributed as dist

import mcore_compat
from mcore_compat import OptimizerSettings
from tests.buffers.planning import differences
from tests.contract.programs.t0 import DISTRIBUTED, UNSHARDED, Job, Trainee, eight_rows, enter

ADAM = OptimizerSettings(lr=1e-2)
JOBS = {
    "fp32": Job(settings=ADAM, data_parallel=UNSHARDED),
    "bf16": Job(settings=ADAM, precision="bf16", data_parallel=UNSHARDED),
    "fp32 distributed": Job(settings=ADAM, data_parallel=DISTRIBUTED),
    "bf16 distributed": Job(settings=ADAM, precision="bf16", data_parallel=DISTRIBUTED),
}
MICRO = 8


def one_process(release: str, examples: int) -> dict[str, Any]:
    """Rounds of training with everything moved about, then layouts of other numbers of ranks."""
    warnings.simplefilter("ignore")
    mcore_compat.prepare("cpu")
    enter()
    found = {name: moved_about(job) for name, job in JOBS.items()}
    mcore_compat.reset()
    dist.destroy_process_group()
    return {"moved": found, "layouts": differences(release, examples)}


def moved_about(job: Job) -> dict[str, Any]:
    """Three steps with buffers made, offloaded and reloaded in between, against three undisturbed ones."""
    rows = eight_rows()
    undisturbed, disturbed = Trainee(job), Trainee(job)
    for _ in range(3):
        undisturbed.train(rows, MICRO)
    disturbed.train(rows, MICRO)
    buffers = mcore_compat.memory_buffers(disturbed.chunks)
    disturbed.accumulate(rows, MICRO)
    sizes = freed_and_restored(disturbed)
    disturbed.optimizer.step()
    mcore_compat.offload(disturbed.chunks, disturbed.optimizer, {"optimizer"})
    alone = {"params": memory(disturbed, "params"), "optimizer": memory(disturbed, "optimizer")}
    mcore_compat.reload(disturbed.chunks, disturbed.optimizer)
    disturbed.train(rows, MICRO)
    again = mcore_compat.memory_buffers(disturbed.chunks)
    views = {name: view for buffer in buffers for name, view in buffer.views.items()}
    [chunk] = mcore_compat.unwrap(disturbed.chunks)
    return {
        "changed": disturbed.changed(),
        "equal": same(undisturbed, disturbed),
        "views are the parameters": all(views[n].data_ptr() == p.data_ptr() for n, p in chunk.named_parameters()),
        "views": len(views),
        "same storage": [b.data.data_ptr() for b in buffers] == [b.data.data_ptr() for b in again],
        "in place": all(inside(view, buffer.data) for buffer in buffers for view in buffer.views.values()),
        "offsets": offsets(disturbed.chunks[0], buffers),
        "sizes": sizes,
        "optimizer alone": alone,
        "stale": stale(disturbed),
    }


def freed_and_restored(trainee: Trainee) -> dict[str, Any]:
    """Bytes in memory before, while and after everything is away."""
    parts = ("params", "grads", "optimizer")
    before = {part: memory(trainee, part) for part in parts}
    freed = mcore_compat.offload(trainee.chunks, trainee.optimizer)
    away = {part: memory(trainee, part) for part in parts}
    again = mcore_compat.offload(trainee.chunks, trainee.optimizer)
    mcore_compat.reload(trainee.chunks, trainee.optimizer)
    return {
        "before": before,
        "away": away,
        "after": {part: memory(trainee, part) for part in parts},
        "freed": freed,
        "freed again": again,
    }


def memory(trainee: Trainee, part: str) -> int:
    """Bytes of the storages of a part, read off the tensors that Megatron itself keeps."""
    parameters = [parameter for chunk in trainee.chunks for parameter in chunk.parameters()]
    tensors = {
        "params": lambda: [parameter.data for parameter in parameters],
        "grads": lambda: [parameter.main_grad for parameter in parameters],
        "optimizer": lambda: moments(trainee.optimizer.inner),
    }[part]()
    storages = {tensor.untyped_storage()._cdata: tensor.untyped_storage().nbytes() for tensor in tensors}
    return sum(storages.values())


def moments(inner: Any) -> list[torch.Tensor]:
    """First moments of Adam."""
    optimizers = [one.optimizer for one in getattr(inner, "chained_optimizers", [inner])]
    return [state["exp_avg"] for optimizer in optimizers for state in optimizer.state.values()]


def same(one: Trainee, other: Trainee) -> bool:
    """Whether two models have the same bits."""
    found, expected = other.parameters(), one.parameters()
    return all(torch.equal(found[name], expected[name]) for name in expected)


def inside(view: torch.Tensor, data: torch.Tensor) -> bool:
    """Whether a view lies in this storage."""
    return view.untyped_storage().data_ptr() == data.untyped_storage().data_ptr()


def offsets(chunk: Any, buffers: Any) -> bool:
    """Whether each view lies where the gradient of its parameter lies in its own buffer."""
    parameters = dict(mcore_compat.unwrap(chunk).named_parameters())
    return all(
        view.storage_offset() == parameters[name].main_grad.storage_offset()
        for buffer in buffers
        for name, view in buffer.views.items()
    )


def stale(trainee: Trainee) -> str:
    """What is said after a framework bound a parameter to storage of its own."""
    parameter = next(trainee.chunks[0].parameters())
    parameter.data = parameter.data.clone()
    try:
        mcore_compat.memory_buffers(trainee.chunks)
    except mcore_compat.StaleParameter as error:
        return str(error)
    return ""
