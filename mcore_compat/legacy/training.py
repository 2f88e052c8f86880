"""``get_model`` of ``megatron.training``: chunks as the program's arguments say."""

from __future__ import annotations

from typing import Any

from mcore_compat.contracts import DataParallelSettings
from mcore_compat.legacy.global_vars import get_args
from mcore_compat.seams.data_parallel import wrap_data_parallel
from mcore_compat.seams.model import build_model, unwrap

__all__ = ["get_model"]


def get_model(model_provider_func: Any, model_type: Any = None, wrap_with_ddp: bool = True) -> list[Any]:
    """Build the chunks of this rank and wrap them.

    Args:
        model_provider_func: Called with ``pre_process`` and ``post_process``, once for each chunk.
        model_type: Of every module; ``None``: as the modules say.
        wrap_with_ddp: Whether the model is to be trained.

    Raises:
        ConfigError: Nobody has set arguments or made process groups.
    """
    args = get_args()
    chunks = build_model(model_provider_func)
    for module in unwrap(chunks) if model_type else ():
        module.model_type = model_type
    if not wrap_with_ddp:
        return chunks
    settings = DataParallelSettings(
        use_distributed_optimizer=args.use_distributed_optimizer,
        overlap_grad_reduce=args.overlap_grad_reduce,
        grad_reduce_in_fp32=args.accumulate_allreduce_grads_in_fp32,
    )
    return wrap_data_parallel(chunks, None, settings)
