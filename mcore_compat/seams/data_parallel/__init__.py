"""Axis: how the data-parallel wrapper is constructed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from mcore_compat.contracts import DataParallelSettings
from mcore_compat.errors import ConfigError
from mcore_compat.seams._registry import Seam
from mcore_compat.seams.zero_grad import seam as zero_grad_seam

# (chunk, config, settings, disable_bucketing) -> DistributedDataParallel
WrapChunk = Callable[[Any, Any, DataParallelSettings, bool], Any]

seam: Seam[WrapChunk] = Seam(
    "data_parallel",
    target="megatron.core.distributed.distributed_data_parallel:DistributedDataParallel.__init__",
)
_wrapped_with: WeakKeyDictionary[Any, DataParallelSettings] = WeakKeyDictionary()


def wrap_data_parallel(
    chunks: Sequence[Any], config: Any = None, settings: DataParallelSettings | None = None
) -> list[Any]:
    """Wrap each chunk in Megatron's DistributedDataParallel and give all data-parallel ranks the same weights.

    Dense gradients are averaged over data × context-parallel ranks, those of experts over the expert-data group.

    Args:
        chunks: What :func:`mcore_compat.gpt_model` or :func:`mcore_compat.build_model` returned.
        config: ``TransformerConfig``; ``None``: each chunk's own.
        settings: What the wrapper does.

    Raises:
        ConfigError: Settings that contradict each other or are none, or tied embeddings whose place in the buffer
            differs between pipeline stages on this release.
        FeatureUnavailable: A setting that this release cannot honour.
    """
    from mcore_compat.seams._agreement import same_on_all_ranks
    from mcore_compat.seams.config import get_model_config

    settings = settings or DataParallelSettings()
    _check(config, settings)
    wrap = seam.bind()
    with same_on_all_ranks("wrapping the model for data parallelism"):
        # Only the first chunk's communication is on the critical path, so only that one is cut into buckets.
        wrapped = [
            wrap(chunk, config or get_model_config(chunk), settings, settings.disable_bucketing or index > 0)
            for index, chunk in enumerate(chunks)
        ]
    _broadcast(wrapped)
    _wrapped_with.update(dict.fromkeys(wrapped, settings))
    return wrapped


def settings_of(chunks: Sequence[Any], given: DataParallelSettings | None) -> DataParallelSettings:
    """What these chunks were wrapped with; of chunks that somebody else wrapped, what is ``given``, or the defaults.

    Raises:
        ConfigError: Something else is given.
    """
    found = next((_wrapped_with[chunk] for chunk in chunks if chunk in _wrapped_with), given)
    if given not in (None, found):
        raise ConfigError(f"the chunks were wrapped with {found}, but here is {given}", hint="leave data_parallel out")
    return found or DataParallelSettings()


def zero_grad(chunks: Sequence[Any], optimizer: Any) -> None:
    """Clear gradients before a step: the wrapper's buffers and the optimizer's, in the order that upstream needs.

    Args:
        chunks: Wrapped chunks.
        optimizer: From :func:`mcore_compat.build_optimizer`.
    """
    clear = zero_grad_seam.bind()
    for chunk in chunks:
        clear(chunk, optimizer.keeps_params_in_grad_buffer)
    optimizer.zero_grad()


def _check(config: Any, settings: DataParallelSettings) -> None:
    if isinstance(config, DataParallelSettings) or not isinstance(settings, DataParallelSettings):
        found = config if isinstance(config, DataParallelSettings) else settings
        raise ConfigError(
            f"{type(found).__name__} is not what is expected in its place",
            hint="wrap_data_parallel(chunks, settings=mcore_compat.DataParallelSettings(...))",
        )
    needs = settings.use_distributed_optimizer and settings.overlap_grad_reduce
    if settings.overlap_param_gather and not needs:
        raise ConfigError("overlap_param_gather needs use_distributed_optimizer and overlap_grad_reduce")


def _broadcast(wrapped: Sequence[Any]) -> None:
    """Weights of the first data-parallel rank for all; upstream's own method is broken in 0.6 and 0.7."""
    import torch

    from mcore_compat.seams.parallel import groups

    here = groups()
    for parameter in (parameter for chunk in wrapped for parameter in chunk.parameters()):
        group = here.dp_cp if getattr(parameter, "allreduce", True) else here.expert_dp
        if group.size > 1:
            torch.distributed.broadcast(parameter.data, src=group.ranks[0], group=group.handle)
