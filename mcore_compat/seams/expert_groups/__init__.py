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
