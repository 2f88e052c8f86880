"""``get_model`` of ``megatron.training``: chunks as the program's arguments say."""

from __future__ import annotations

from typing import Any

from mcore_compat.contracts import DataParallelSettings
from mcore_compat.errors import ConfigError, FeatureUnavailable
from mcore_compat.legacy.global_vars import get_args
from mcore_compat.seams.config import get_model_config
from mcore_compat.seams.data_parallel import wrap_data_parallel
from mcore_compat.seams.model import build_model, unwrap

__all__ = ["get_model"]

# What arguments of all eras say about the wrapper, and what DataParallelSettings calls it.
_ASKED = {
    "use_distributed_optimizer": "use_distributed_optimizer",
    "overlap_grad_reduce": "overlap_grad_reduce",
    "overlap_param_gather": "overlap_param_gather",
    "accumulate_allreduce_grads_in_fp32": "grad_reduce_in_fp32",
    "check_for_nan_in_loss_and_grad": "check_for_nan_in_grad",
    "ddp_bucket_size": "bucket_size",
    "ddp_average_in_collective": "average_in_collective",
    "ddp_pad_buckets_for_high_nccl_busbw": "pad_buckets_for_high_nccl_busbw",
    "num_distributed_optimizer_instances": "num_distributed_optimizer_instances",
}
# Of later eras: other wrappers, and what ours has no setting for.
_REFUSED = (
    *("use_torch_fsdp2", "use_custom_fsdp", "use_megatron_fsdp", "overlap_param_gather_with_optimizer_step"),
    *("check_for_large_grads", "ddp_num_buckets", "ddp_reduce_scatter_with_fp32_accumulation"),
)


def get_model(model_provider_func: Any, model_type: Any = None, wrap_with_ddp: bool = True) -> list[Any]:
    """Build the chunks of this rank and wrap them.

    Args:
        model_provider_func: Called with ``pre_process`` and ``post_process``, once for each chunk.
        model_type: Of every module; ``None``: as the modules say.
        wrap_with_ddp: Whether the model is to be trained.

    Raises:
        ConfigError: Nobody has set arguments or made process groups, or the model is of another precision than the
            arguments say.
        FeatureUnavailable: The arguments ask for a wrapper, or for a setting of it, that cannot be served.
    """
    args = get_args()
    chunks = build_model(model_provider_func)
    for module in unwrap(chunks):
        _check_precision(args, get_model_config(module))
        if model_type is not None:
            module.model_type = model_type
    return wrap_data_parallel(chunks, None, _settings(args)) if wrap_with_ddp else chunks


def _check_precision(args: Any, config: Any) -> None:
    for name in ("bf16", "fp16"):
        asked, found = bool(getattr(args, name, getattr(config, name))), bool(getattr(config, name))
        if asked is not found:
            raise ConfigError(
                f"the arguments say {name}={asked}, the model's config {name}={found}",
                hint=f"{name}={asked} in the config that the model is built from",
            )


def _settings(args: Any) -> DataParallelSettings:
    if refused := [name for name in _REFUSED if getattr(args, name, None)]:
        raise FeatureUnavailable(
            f"get_model cannot serve {', '.join(refused)}", hint="build_model, and the release's own wrapper around it"
        )
    return DataParallelSettings(
        **{ours: getattr(args, theirs) for theirs, ours in _ASKED.items() if hasattr(args, theirs)}
    )
