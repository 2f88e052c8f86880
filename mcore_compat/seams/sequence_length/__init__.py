"""Axis: whether schedules take the length of the whole sequence or of this context-parallel rank's part."""

from __future__ import annotations

from collections.abc import Callable

from mcore_compat.seams._registry import Seam

# (length of the whole sequence, context-parallel size) -> what to pass as seq_length
SequenceLength = Callable[[int, int], int]

seam: Seam[SequenceLength] = Seam("sequence_length")

_DIVIDES = (
    "megatron.core.pipeline_parallel.schedules:get_tensor_shapes",
    "seq_length // parallel_state.get_context_parallel_world_size()",
)
_DIVIDES_BY_GROUP = ("megatron.core.pipeline_parallel.schedules:get_tensor_shapes", "// cp_group.size()")
