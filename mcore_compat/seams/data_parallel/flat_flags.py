"""DDP takes flat flags and one data-parallel group; experts stay outside its buffers.

Upstream: 0.6.0 added the expert group.
Drop when: the floor passes 0.5.0.
"""

from __future__ import annotations

from typing import Any

from mcore_compat.contracts import DataParallelSettings
from mcore_compat.seams._registry import Shape
from mcore_compat.seams.data_parallel import WrapChunk, seam
from mcore_compat.seams.data_parallel._flat import bucket_size, refuse


@seam.variant(
    "flat_flags",
    since="0.4.0",
    shape=Shape(accepts={"accumulate_allreduce_grads_in_fp32"}, lacks={"expert_data_parallel_group"}),
)
def bind() -> WrapChunk:
    """Bind upstream's class."""
    from megatron.core import parallel_state
    from megatron.core.distributed import DistributedDataParallel

    def wrap(chunk: Any, config: Any, settings: DataParallelSettings, disable_bucketing: bool) -> Any:
        _refuse_tied(chunk, settings)
        refuse(settings, "check_for_nan_in_grad", "0.6.0")
        refuse(settings, "average_in_collective", "0.8.0")
        return DistributedDataParallel(
            config,
            chunk,
            data_parallel_group=parallel_state.get_data_parallel_group(with_context_parallel=True),
            accumulate_allreduce_grads_in_fp32=settings.grad_reduce_in_fp32,
            overlap_grad_reduce=settings.overlap_grad_reduce,
            use_distributed_optimizer=settings.use_distributed_optimizer,
            disable_bucketing=disable_bucketing,
            **bucket_size(settings),
        )

    return wrap


def _refuse_tied(chunk: Any, settings: DataParallelSettings) -> None:
    """Both stages add their gradients after each rank has kept its shard only, and the shards are cut differently."""
    from mcore_compat.seams._agreement import tied_embeddings_misplaced
    from mcore_compat.seams.model import unwrap
    from mcore_compat.seams.parallel import groups

    tied = getattr(unwrap(chunk), "share_embeddings_and_output_weights", False)
    if tied and settings.use_distributed_optimizer and groups().pp.size > 1 and groups().dp_cp.size > 1:
        raise tied_embeddings_misplaced("tied embeddings with pipeline parallelism and use_distributed_optimizer")
