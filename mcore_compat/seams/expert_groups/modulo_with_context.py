"""As ``modulo``, and context-parallel ranks take part in the average only when asked for.

Upstream: 0.10.0 renamed the getter to ``get_expert_data_parallel_group``.
Drop when: the floor passes 0.9.0.
"""

from __future__ import annotations

from mcore_compat.seams._registry import Shape
from mcore_compat.seams.expert_groups import ExpertGroups, seam


@seam.variant(
    "modulo_with_context",
    since="0.8.0",
    shape=Shape(
        undefined={"megatron.core.parallel_state:get_expert_data_parallel_group"},
        accepts={"with_context_parallel"},
    ),
)
def bind() -> ExpertGroups:
    """Bind upstream's getters."""
    from megatron.core import parallel_state as state

    return lambda: (
        state.get_expert_model_parallel_group(),
        state.get_data_modulo_expert_parallel_group(with_context_parallel=True),
    )
