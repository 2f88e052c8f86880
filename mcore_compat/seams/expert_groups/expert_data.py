"""Expert groups are generated on their own, with an independent tensor-parallel size.

Upstream: 0.10.0 introduced the second rank generator and ``get_expert_data_parallel_group``.
"""

from __future__ import annotations

from mcore_compat.seams._registry import Shape
from mcore_compat.seams.expert_groups import ExpertGroups, seam


@seam.variant(
    "expert_data",
    since="0.10.0",
    shape=Shape(defines={"megatron.core.parallel_state:get_expert_data_parallel_group"}),
)
def bind() -> ExpertGroups:
    """Bind upstream's getters."""
    from megatron.core import parallel_state as state

    return lambda: (state.get_expert_model_parallel_group(), state.get_expert_data_parallel_group())
