"""The expert-parallel group has a getter; expert gradients are averaged over "data modulo expert".

Upstream: 0.8.0 gave the second getter a context-parallel switch.
Drop when: the floor passes 0.7.0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcore_compat.seams._registry import Shape
from mcore_compat.seams.expert_groups import ExpertGroups, expert_data_parallel_group, seam

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


@seam.variant(
    "modulo",
    since="0.6.0",
    shape=Shape(
        defines={"megatron.core.parallel_state:get_expert_model_parallel_group"},
        undefined={"megatron.core.parallel_state:get_expert_data_parallel_group"},
        lacks={"with_context_parallel"},
    ),
)
def bind() -> ExpertGroups:
    """Bind upstream's getters."""
    from megatron.core import parallel_state as state

    def expert_groups() -> tuple[ProcessGroup, ProcessGroup]:
        ep = state.get_expert_model_parallel_group()
        return ep, expert_data_parallel_group(ep.size())

    return expert_groups
