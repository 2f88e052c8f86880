"""Programs that need a process of their own, because they change torch or what is imported."""

from __future__ import annotations

import importlib.util
import sys
import warnings
from typing import Any

from mcore_compat import runtime
from mcore_compat.errors import FeatureUnavailable, McoreCompatError
from mcore_compat.runtime import session
from mcore_compat.runtime.device import device, is_host

STAND_INS = ("amp_C", "apex", "pkg_resources", "six", "tools", "transformer_engine", "triton")


def refused(device: str, *before: str) -> dict[str, str]:
    """The error of ``prepare(device)`` after importing modules."""
    warnings.simplefilter("ignore")
    for name in before:
        importlib.import_module(name)
    try:
        runtime.prepare(device)  # type: ignore[arg-type]
    except McoreCompatError as error:
        return {"error": type(error).__name__, "text": str(error)}
    return {}


def another_device() -> dict[str, Any]:
    """Prepare for the CPU, again for any device, then for CUDA."""
    first = runtime.prepare("cpu")
    same = first is runtime.prepare() is runtime.prepare("cpu") is runtime.report()
    return {"same": same, "device": str(device()), "host": is_host(), **refused("cuda")}


def old_checkout() -> dict[str, Any]:
    """Import what a checkout with ``megatron/__init__.py`` runs."""
    report = runtime.prepare("cpu")
    megatron = importlib.import_module("megatron")
    optimizer = importlib.import_module("megatron.optimizer")
    try:
        megatron.get_args_path("somewhere")
    except McoreCompatError as error:
        refusal = str(error)
    return {
        "Adam": optimizer.Adam.__module__,
        "refusal": refusal,
        "stand-ins": [action.name for action in report.actions if action.kind == "stand-in"],
    }


def round_trip() -> dict[str, Any]:
    """Which names of torch differ, after ``prepare()`` and after ``restore()``."""
    import torch
    import torch.distributed as dist

    holders = (torch, torch.Tensor, torch.cuda, torch.cuda.random, torch.cuda.nvtx, dist)
    table = torch.jit._builtins._get_builtin_table()
    before = [*(dict(vars(holder)) for holder in holders), dict(table)]
    finders = list(sys.meta_path)
    runtime.prepare("cpu")
    changed = sum(dict(vars(holder)) != old for holder, old in zip(holders, before, strict=False))
    torch.histc(torch.arange(4), 2)
    runtime.restore()
    after = [*(dict(vars(holder)) for holder in holders), dict(table)]
    return {
        "changed": changed,
        "restored": after == before and finders == sys.meta_path,
        "report": runtime.report() is None,
        "again": runtime.prepare("cpu").device,
    }


def leaves_no_stand_in(*modules: str) -> dict[str, Any]:
    """Import Megatron modules, then look for traces and for what probing them would find."""
    import importlib.metadata

    warnings.simplefilter("ignore")
    report = runtime.prepare("cpu")
    loaded = {name: importlib.import_module(name) for name in modules}
    absent = [name for name in STAND_INS if importlib.util.find_spec(name) is None]
    versions = [dist.name for dist in importlib.metadata.distributions() if dist.name == "transformer-engine"]
    repaired = importlib.import_module("megatron.core.fusions.fused_layer_norm").FusedLayerNorm.__module__
    result = {
        "stand-ins": [action.name for action in report.actions if action.kind == "stand-in"],
        "in sys.modules": [name for name in STAND_INS if name in sys.modules],
        "importable": [name for name in STAND_INS if name not in absent],
        "versions": versions,
        "FusedLayerNorm": repaired,
        "HAVE_TE": {name: getattr(module, "HAVE_TE", None) for name, module in loaded.items()},
    }
    runtime.restore()
    after = importlib.import_module("megatron.core.fusions.fused_layer_norm").FusedLayerNorm.__module__
    return {**result, "FusedLayerNorm restored": after}


def host_device() -> dict[str, Any]:
    """Ask torch for CUDA in every spelling Megatron uses."""
    runtime.prepare("cpu")
    import torch

    half = torch.cuda.HalfTensor([1.0])
    stream, event = torch.cuda.Stream(), torch.cuda.Event(enable_timing=True)
    with torch.cuda.stream(stream), torch.cuda.device(0):
        event.record()
    torch.cuda.current_stream().wait_event(stream.record_event())
    places = [
        torch.empty(2, device="cuda"),
        torch.zeros(2, device=torch.cuda.current_device()),
        torch.tensor([1], device=torch.device("cuda", 0), pin_memory=True),
        torch.ones(1).cuda(non_blocking=True).new_full((1,), 3.0, device="cuda:0"),
        torch.ones(1).to("cuda").to(0).to(device="cuda", dtype=torch.float64),
        torch.nn.Linear(2, 2, device="cuda").cuda(0).weight,
        torch.Generator("cpu"),
        half,
    ]
    return {
        "devices": sorted({place.device.type for place in places}),
        "types": [half.type(), torch.ones(1).type(), str(half.type("torch.cuda.FloatTensor").dtype)],
        "isinstance": [
            isinstance(half, torch.cuda.HalfTensor),
            isinstance(torch.ones(1), torch.cuda.FloatTensor),
            isinstance(half, torch.cuda.FloatTensor),
        ],
        "meta": [_on_meta().type, torch.empty(1, device="meta").device.type],
        "histogram": torch.histc(torch.tensor([0, 1, 1, 3]), bins=4, min=0, max=3).tolist(),
        "available": torch.cuda.is_available(),
        "elapsed": event.elapsed_time(event),
    }


def _on_meta() -> Any:
    import torch

    with torch.device("meta"):
        return torch.empty(1).device


def compilers() -> dict[str, Any]:
    """TorchScript and torch.compile on functions that make tensors."""
    runtime.prepare("cpu")
    import torch

    from tests.runtime.scripted import padded

    compiled = torch.compile(padded, backend="eager", fullgraph=True)
    values = torch.ones(2)
    return {
        "script": torch.jit.script(padded)(values).tolist(),
        "compile": compiled(values).tolist(),
    }


def random_states() -> dict[str, Any]:
    """Megatron's tracker: forked numbers are reproducible, and leave the outer sequence alone."""
    warnings.simplefilter("ignore")
    runtime.prepare("cpu")
    import torch
    from megatron.core import parallel_state
    from megatron.core.tensor_parallel import random

    torch.distributed.init_process_group("nccl")
    parallel_state.initialize_model_parallel()
    runs = []
    for _ in range(2):
        random.model_parallel_cuda_manual_seed(11)
        outer = [torch.rand(1).item()]
        with random.get_cuda_rng_tracker().fork():
            forked = torch.rand(2, device="cuda").tolist()
        outer.append(torch.rand(1).item())
        runs.append([outer, forked])
    random.model_parallel_cuda_manual_seed(11)
    unforked = [torch.rand(1).item(), torch.rand(1).item()]
    torch.distributed.destroy_process_group()
    return {"runs": runs, "unforked": unforked}


def averages() -> dict[str, Any]:
    """Averaging collectives over the ranks, through NCCL's spellings."""
    runtime.prepare("cpu")
    import torch
    import torch.distributed as dist

    dist.init_process_group(backend="nccl", device_id=torch.device("cuda:0"))
    group = dist.new_group(backend="nccl")
    rank = dist.get_rank()
    whole = torch.tensor([1.0 + rank, 3.0 + rank])
    part = torch.empty(1)
    dist.reduce_scatter_tensor(part, whole, op=dist.ReduceOp.AVG, group=group)
    kept = whole.tolist()
    work = dist.all_reduce(whole, op=dist.ReduceOp.AVG, group=group, async_op=True)
    work.wait()
    scaled = torch.tensor([1.0 + rank])
    dist.all_reduce(scaled, op=dist._make_nccl_premul_sum(0.25), group=group)
    result = {"all": whole.tolist(), "part": part.tolist(), "kept": kept, "backend": dist.get_backend(group)}
    result["scaled"] = scaled.tolist()
    try:
        dist.all_reduce(torch.tensor([3]), op=dist.ReduceOp.AVG, group=group)
    except FeatureUnavailable as error:
        result["integers"] = str(error)
    dist.destroy_process_group()
    return result


def unmodified(host: bool) -> dict[str, Any]:
    """What a program under ``matrix exec`` finds that imports Megatron before it calls ``prepare()``, if ever."""
    warnings.simplefilter("ignore")
    import torch

    truth = torch.cuda.is_available
    if host:
        session.become_host()
    session.stand_in()
    importlib.import_module("megatron.core.models.gpt")
    report = session.report()
    found = {"device": report.device if report else "", "untouched": torch.cuda.is_available is truth}
    if host:
        runtime.restore()
        found |= {"available": torch.cuda.is_available(), "place": torch.ones(1).cuda().device.type, "host": is_host()}
    return {**found, **refused("cpu")}
