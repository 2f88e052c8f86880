"""``torch.distributed``: NCCL means gloo, a mesh of CUDA devices one of CPUs, and averages are sums of shares."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import device_mesh

from mcore_compat.runtime.patches import Patch


def _group_maker(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def make(*args: Any, **kwargs: Any) -> Any:
        args = tuple(_gloo(value) if isinstance(value, str) else value for value in args)
        if "backend" in kwargs:
            kwargs["backend"] = _gloo(kwargs["backend"])
        kwargs.pop("device_id", None)
        kwargs.pop("pg_options", None)
        return original(*args, **kwargs)

    return make


def _gloo(backend: Any) -> Any:
    return "gloo" if isinstance(backend, str) and "nccl" in backend.lower() else backend


def _barrier(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def barrier(group: Any = None, async_op: bool = False, device_ids: Any = None, **kwargs: Any) -> Any:
        return original(group, async_op, None, **kwargs)

    return barrier


def _mesh_maker(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def make(*args: Any, **kwargs: Any) -> Any:
        args = tuple("cpu" if value == "cuda" else value for value in args)
        if kwargs.get("device_type") == "cuda":
            kwargs["device_type"] = "cpu"
        return original(*args, **kwargs)

    return make


def _averaging_all_reduce(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def all_reduce(tensor: torch.Tensor, op: Any = dist.ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Any:
        if op == dist.ReduceOp.AVG:
            tensor.div_(dist.get_world_size(group))
            op = dist.ReduceOp.SUM
        return original(tensor, op, group, async_op)

    return all_reduce


def _averaging_reduce_scatter(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def reduce_scatter(
        output: torch.Tensor,
        input: torch.Tensor,
        op: Any = dist.ReduceOp.SUM,
        group: Any = None,
        async_op: bool = False,
    ) -> Any:
        if op == dist.ReduceOp.AVG:
            input = input / dist.get_world_size(group)
            op = dist.ReduceOp.SUM
        return original(output, input, op, group, async_op)

    return reduce_scatter


def patches() -> list[Patch]:
    """Patches of group creation and of the reductions that Megatron averages with."""
    gloo = "gloo is the CPU's backend"
    average = "gloo has no average"
    return [
        *(Patch(dist, name, _group_maker(getattr(dist, name)), gloo) for name in ("init_process_group", "new_group")),
        Patch(dist, "barrier", _barrier(dist.barrier), gloo),
        *(
            Patch(holder, "init_device_mesh", _mesh_maker(device_mesh.init_device_mesh), gloo)
            for holder in (dist, device_mesh)
        ),
        Patch(device_mesh.DeviceMesh, "__init__", _mesh_maker(device_mesh.DeviceMesh.__init__), gloo),
        Patch(dist, "all_reduce", _averaging_all_reduce(dist.all_reduce), average),
        *(
            Patch(dist, name, _averaging_reduce_scatter(getattr(dist, name)), average)
            for name in ("_reduce_scatter_base", "reduce_scatter_tensor")
            if hasattr(dist, name)
        ),
    ]
