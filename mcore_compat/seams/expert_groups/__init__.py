"""Axis: which getters hand out the expert-parallel group and the group that averages expert gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from mcore_compat.seams._registry import Seam

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

# () -> (expert-parallel group, expert-data-parallel group)
ExpertGroups = Callable[[], "tuple[ProcessGroup, ProcessGroup]"]

seam: Seam[ExpertGroups] = Seam(
    "expert_groups", target="megatron.core.parallel_state:get_data_modulo_expert_parallel_group"
)


def expert_data_parallel_group(ep: int) -> ProcessGroup:
    """The averaging group of the releases up to 0.7, whose own getter leaves context-parallel ranks out.

    With one expert rank all parameters are averaged over data × context-parallel ranks; with more, these releases
    refuse context parallelism.
    """
    from megatron.core import parallel_state as state

    dense: ProcessGroup = state.get_data_parallel_group(with_context_parallel=True)
    expert: ProcessGroup = state.get_data_modulo_expert_parallel_group()
    return dense if ep == 1 else expert
