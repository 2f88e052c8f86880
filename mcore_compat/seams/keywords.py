"""Optional keywords that appeared in some release: passed where accepted, never dropped in silence.

``FIRST_RELEASE`` names, per upstream callable, the release in which a keyword first worked. Callers use the newest
names; a keyword that the release does not accept is an error unless its value means "off" (``None`` or ``False``).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from mcore_compat.errors import FeatureUnavailable

FIRST_RELEASE: Mapping[str, Mapping[str, str]] = {
    "initialize_model_parallel": {
        "distributed_timeout_minutes": "0.6.0",
        "order": "0.7.0",
        "hierarchical_context_parallel_sizes": "0.10.0",
        "num_distributed_optimizer_instances": "0.10.0",
        "expert_tensor_parallel_size": "0.10.0",
        "create_gloo_process_groups": "0.12.0",
        "high_priority_stream_groups": "0.13.0",
    },
    "DistributedDataParallelConfig": {
        "average_in_collective": "0.8.0",
        "overlap_param_gather": "0.9.0",
        "num_distributed_optimizer_instances": "0.10.0",
        "pad_buckets_for_high_nccl_busbw": "0.12.0",
    },
    "OptimizerConfig": {
        "overlap_param_gather": "0.6.0",
        "overlap_grad_reduce": "0.6.0",
    },
    "GPTModel": {
        "scatter_embedding_sequence_parallel": "0.10.0",
        "rope_scaling": "0.10.0",
        "rope_scaling_factor": "0.11.0",
        "mtp_block_spec": "0.12.0",
        "vp_stage": "0.13.0",
    },
    "layer spec": {
        "num_experts": "0.5.0",
        "moe_grouped_gemm": "0.5.0",
        "qk_layernorm": "0.6.0",
        "multi_latent_attention": "0.10.0",
        "normalization": "0.12.0",
        "qk_l2_norm": "0.12.0",
    },
}


def accepted(function: Callable[..., Any]) -> frozenset[str] | None:
    """Keyword names of ``function``; ``None`` when it takes any."""
    parameters = inspect.signature(function).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return None
    return frozenset(parameter.name for parameter in parameters)


def is_off(value: object) -> bool:
    """Whether leaving a keyword out means the same as this value."""
    return value is None or value is False


def supported(
    function: Callable[..., Any],
    wanted: Mapping[str, Any],
    *,
    what: str,
    off: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The part of ``wanted`` that ``function`` accepts.

    Args:
        function: Upstream's callable.
        wanted: Keywords under their newest names.
        what: Row of :data:`FIRST_RELEASE`, also used in the message.
        off: Values that mean "off" besides ``None`` and ``False``, by keyword.

    Raises:
        FeatureUnavailable: A keyword that is not off is not accepted by this release.
    """
    names = accepted(function)
    if names is None:
        return dict(wanted)
    for name, value in wanted.items():
        harmless = is_off(value) or (off is not None and name in off and off[name] == value)
        if name not in names and not harmless:
            raise unavailable(f"{what}({name}={value!r})", FIRST_RELEASE.get(what, {}).get(name))
    return {name: value for name, value in wanted.items() if name in names}


def unavailable(setting: str, first: str | None) -> FeatureUnavailable:
    """The error for a setting that this release has no means to honour."""
    newer = f"it first works in Megatron-Core {first}" if first else "no supported release has it"
    return FeatureUnavailable(
        f"this Megatron-Core cannot honour {setting}; {newer}.",
        hint=f"upgrade to megatron-core>={first}, or leave the setting out" if first else "leave the setting out",
    )
