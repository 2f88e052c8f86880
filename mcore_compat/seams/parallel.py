"""Process groups: one call to make them, one value to read them, one call to take them down."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import astuple
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from mcore_compat.contracts import Group, Groups, ParallelLayout
from mcore_compat.errors import ConfigError
from mcore_compat.runtime.device import backend, bind_device
from mcore_compat.seams.expert_groups import seam as expert_groups
from mcore_compat.seams.keywords import supported, unavailable

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

_current: Groups | None = None
# Made for the present layout. Each keeps two threads that wake up a hundred times a second, for as long as it is there.
_made: list[ProcessGroup] = []


def init_parallel(
    tp: int = 1,
    pp: int = 1,
    vpp: int | None = None,
    cp: int = 1,
    ep: int = 1,
    *,
    expert_tp: int | None = None,
    timeout_minutes: int = 10,
    **keywords: Any,
) -> Groups:
    """Split the ranks of the job; starts ``torch.distributed`` first where nobody has.

    Args:
        tp: Tensor-parallel size.
        pp: Pipeline-parallel size.
        vpp: Model chunks per pipeline rank; ``None`` or 1: one.
        cp: Context-parallel size.
        ep: Expert-parallel size.
        expert_tp: Tensor-parallel size of the experts; ``None``: ``tp``.
        timeout_minutes: Timeout of collectives.
        **keywords: Further keywords of ``initialize_model_parallel`` under their newest names.

    Raises:
        ConfigError: The sizes do not divide the number of ranks.
        FeatureUnavailable: This release cannot do what a keyword asks for.
    """
    layout = ParallelLayout(tp, pp, vpp if vpp and vpp > 1 else None, cp, ep, expert_tp)
    _start_distributed(timeout_minutes)
    _check_layout(layout, dist.get_world_size())
    with _new_groups_kept():
        _initialize(layout, timeout_minutes, keywords)
        found = _read_groups(layout)
    dist.barrier()  # a rank that goes ahead may close, in reset(), what its peer is still connecting to
    return found


def groups() -> Groups:
    """The groups that :func:`init_parallel` made.

    Raises:
        ConfigError: There are none.
    """
    if _current is None:
        raise ConfigError("no process groups yet", hint="call mcore_compat.init_parallel(...) first")
    return _current


def reset() -> None:
    """Destroy the groups of the layout, so that :func:`init_parallel` can be called again.

    ``torch.distributed`` stays up. Models of that layout cannot communicate any more.
    """
    global _current
    from megatron.core import parallel_state

    parallel_state.destroy_model_parallel()
    while _made:
        with suppress(ValueError):  # upstream has destroyed it
            dist.destroy_process_group(_made.pop())
    for name in vars(parallel_state):
        # Upstream leaves some of these behind: groups that are dead by now, and ranks of the earlier layout.
        if name.isupper() and name.endswith(("_GROUP_GLOO", "_GLOBAL_RANKS")):
            setattr(parallel_state, name, None)
    _current = None


def _start_distributed(timeout_minutes: int) -> None:
    bind_device()
    if dist.is_initialized():
        return
    timeout = timedelta(minutes=timeout_minutes)
    if "RANK" in os.environ:
        dist.init_process_group(backend(), timeout=timeout)
    else:
        store = torch._C._distributed_c10d.HashStore()
        dist.init_process_group(backend(), store=store, rank=0, world_size=1, timeout=timeout)


def _check_layout(layout: ParallelLayout, world: int) -> None:
    if not all(isinstance(size, int) for size in astuple(layout) if size is not None):
        raise ConfigError(f"parallel sizes must be integers, found {layout}")
    if min(size for size in astuple(layout) if size is not None) < 1:
        raise ConfigError(f"parallel sizes must be at least 1, found {layout}")
    block = layout.tp * layout.pp * layout.cp
    if world % block:
        raise ConfigError(
            f"{world} ranks cannot be split into tp {layout.tp} x pp {layout.pp} x cp {layout.cp} = {block}",
            hint=f"start a multiple of {block} ranks, for example torchrun --nproc-per-node {block}",
        )
    if (world // block * layout.cp) % layout.ep:
        raise ConfigError(f"ep {layout.ep} does not divide the data-parallel size {world // block}")
    if layout.vpp and layout.pp == 1:
        raise ConfigError(f"vpp {layout.vpp} needs pipeline parallelism, found pp 1")


def _initialize(layout: ParallelLayout, timeout_minutes: int, keywords: dict[str, Any]) -> None:
    from megatron.core import parallel_state

    # Releases without the keyword inherit the timeout of the default group, which is the same one.
    inherited = {"distributed_timeout_minutes": timeout_minutes, "expert_tensor_parallel_size": layout.tp}
    extra = supported(
        parallel_state.initialize_model_parallel,
        {"distributed_timeout_minutes": timeout_minutes, "expert_tensor_parallel_size": layout.expert_tp} | keywords,
        what="initialize_model_parallel",
        off=inherited,
    )
    try:
        parallel_state.initialize_model_parallel(
            tensor_model_parallel_size=layout.tp,
            pipeline_model_parallel_size=layout.pp,
            virtual_pipeline_model_parallel_size=layout.vpp,
            context_parallel_size=layout.cp,
            expert_model_parallel_size=layout.ep,
            **extra,
        )
    except (AssertionError, RuntimeError, TypeError) as error:
        if layout.vpp and layout.pp == 2 and "interleaved" in str(error):
            raise unavailable("the interleaved schedule on 2 pipeline stages", "0.8.0") from error
        if layout.ep > 1 and layout.cp > 1:
            raise unavailable("expert together with context parallelism", "0.8.0") from error
        raise ConfigError(f"Megatron refused {layout}: {error or type(error).__name__}") from error


@contextmanager
def _new_groups_kept() -> Iterator[None]:
    """Note the groups that are made. 0.6.0 asks for empty ones under context parallelism, which torch refuses."""
    new_group = dist.new_group

    def keeping(ranks: Any = None, *args: Any, **kwargs: Any) -> Any:
        if ranks is not None and len(ranks) == 0:
            return dist.GroupMember.NON_GROUP_MEMBER
        group = new_group(ranks, *args, **kwargs)
        if group is not dist.GroupMember.NON_GROUP_MEMBER:
            _made.append(group)
        return group

    dist.new_group = keeping
    try:
        yield
    finally:
        dist.new_group = new_group


def _group(handle: ProcessGroup) -> Group:
    return Group(
        handle,
        dist.get_rank(handle),
        dist.get_world_size(handle),
        tuple(dist.get_process_group_ranks(handle)),
    )


def _read_groups(layout: ParallelLayout) -> Groups:
    global _current
    from megatron.core import parallel_state as state

    ep, expert_dp = expert_groups.bind()()
    _current = Groups(
        layout=layout,
        tp=_group(state.get_tensor_model_parallel_group()),
        pp=_group(state.get_pipeline_model_parallel_group()),
        dp=_group(state.get_data_parallel_group()),
        dp_cp=_group(state.get_data_parallel_group(with_context_parallel=True)),
        cp=_group(state.get_context_parallel_group()),
        mp=_group(state.get_model_parallel_group()),
        ep=_group(ep),
        expert_dp=_group(expert_dp),
    )
    return _current
