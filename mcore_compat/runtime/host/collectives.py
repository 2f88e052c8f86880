"""``torch.distributed``: NCCL means gloo, a mesh of CUDA devices one of CPUs, and averages are sums of shares."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch.distributed import device_mesh

from mcore_compat.errors import FeatureUnavailable
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


class Premultiplied(NamedTuple):
    """What ``_make_nccl_premul_sum`` gives: a sum of inputs that are multiplied first."""

    factor: Any


def _as_sum(tensor: torch.Tensor, op: Any, group: Any) -> tuple[torch.Tensor, Any]:
    """What has to be summed to have what ``op`` asks for."""
    if isinstance(op, Premultiplied):
        return tensor * op.factor, dist.ReduceOp.SUM
    if op == dist.ReduceOp.AVG:
        if not tensor.is_floating_point():
            raise FeatureUnavailable(f"the CPU host averages no {tensor.dtype}", hint="sum, and divide afterwards")
        return tensor / dist.get_world_size(group), dist.ReduceOp.SUM
    return tensor, op


def _all_reduce(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def all_reduce(tensor: torch.Tensor, op: Any = dist.ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Any:
        share, op = _as_sum(tensor, op, group)
        if share is not tensor:
            tensor.copy_(share)
        return original(tensor, op, group, async_op)

    return all_reduce


def _reduce_scatter(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def reduce_scatter(
        output: torch.Tensor,
        input: torch.Tensor,
        op: Any = dist.ReduceOp.SUM,
        group: Any = None,
        async_op: bool = False,
    ) -> Any:
        share, op = _as_sum(input, op, group)
        return original(output, share, op, group, async_op)

    return reduce_scatter


def patches() -> list[Patch]:
    """Patches of group creation and of the reductions that gloo lacks."""
    gloo = "gloo is the CPU's backend"
    average = "gloo can only sum"
    return [
        *(Patch(dist, name, _group_maker(getattr(dist, name)), gloo) for name in ("init_process_group", "new_group")),
        Patch(dist, "barrier", _barrier(dist.barrier), gloo),
        *(
            Patch(holder, "init_device_mesh", _mesh_maker(device_mesh.init_device_mesh), gloo)
            for holder in (dist, device_mesh)
        ),
        Patch(device_mesh.DeviceMesh, "__init__", _mesh_maker(device_mesh.DeviceMesh.__init__), gloo),
        Patch(dist, "all_reduce", _all_reduce(dist.all_reduce), average),
        *(
            Patch(dist, name, _reduce_scatter(getattr(dist, name)), average)
            for name in ("_reduce_scatter_base", "reduce_scatter_tensor")
            if hasattr(dist, name)
        ),
        Patch(dist, "_make_nccl_premul_sum", Premultiplied, average),
    ]
