"""There is no expert-parallel group, only its size: it is made here, as the tensor-expert ranks of one tensor rank.

Upstream: 0.6.0 added ``get_expert_model_parallel_group``.
Drop when: the floor passes 0.5.0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcore_compat.seams._registry import Shape
from mcore_compat.seams.expert_groups import ExpertGroups, expert_data_parallel_group, seam

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


@seam.variant(
    "sizes_only",
    since="0.4.0",
    shape=Shape(undefined={"megatron.core.parallel_state:get_expert_model_parallel_group"}),
)
def bind() -> ExpertGroups:
    """Bind upstream's getters."""
    import torch.distributed as dist
    from megatron.core import parallel_state as state

    def expert_groups() -> tuple[ProcessGroup, ProcessGroup]:
        block = dist.get_process_group_ranks(state.get_tensor_and_expert_parallel_group())
        mine = tuple(block[state.get_tensor_model_parallel_rank() :: state.get_tensor_model_parallel_world_size()])
        every: list[tuple[int, ...]] = [()] * dist.get_world_size()
        dist.all_gather_object(every, mine)
        made = {ranks: dist.new_group(list(ranks)) for ranks in sorted(set(every))}
        return made[mine], expert_data_parallel_group(len(mine))

    return expert_groups
