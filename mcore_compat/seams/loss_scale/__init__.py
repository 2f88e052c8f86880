"""Axis: what the schedule and the wrapper multiply a loss's gradient by.

For a loss function that returns (loss, data), the gradient that arrives in the buffers after reduction is
Σ over ranks and microbatches of d(loss) · factor / (microbatches · data-parallel · context-parallel ranks).
"""

from __future__ import annotations

from collections.abc import Callable

from mcore_compat.seams._registry import Seam

# context-parallel size -> factor
LossFactor = Callable[[int], float]

seam: Seam[LossFactor] = Seam("loss_scale")

_FORWARD_STEP = "megatron.core.pipeline_parallel.schedules:forward_step"
_CALC_LOSS = "megatron.core.pipeline_parallel.schedules:forward_step_calc_loss"
_DDP = "megatron.core.distributed.distributed_data_parallel:DistributedDataParallel.__init__"
_MULTIPLIES = (_FORWARD_STEP, "output_tensor *= parallel_state.get_context_parallel_world_size()")
_DATA_PARALLEL_ONLY = (_DDP, "1.0 / parallel_state.get_data_parallel_world_size()")
