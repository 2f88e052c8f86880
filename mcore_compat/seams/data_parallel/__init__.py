"""Axis: how the data-parallel wrapper is constructed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any
from weakref import WeakKeyDictionary

from mcore_compat.contracts import DataParallelSettings
from mcore_compat.errors import ConfigError
from mcore_compat.seams._arguments import misplaced, require_chunks, require_optimizer
from mcore_compat.seams._memory import cleared, require_here
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
        ConfigError: Arguments of another kind, settings that contradict each other, or tied embeddings whose place
            in the buffer differs between pipeline stages on this release.
        FeatureUnavailable: A setting that this release cannot honour.
    """
    from mcore_compat.seams._agreement import same_on_all_ranks
    from mcore_compat.seams.config import get_model_config

    settings = settings or DataParallelSettings()
    require_chunks(chunks, wrapped=False)
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


def replaced(built: Any, wrapper: Any) -> None:
    """Note that another wrapper has taken the place, and all state, of one that was built."""
    _wrapped_with[wrapper] = _wrapped_with.pop(built)


def settings_of(chunks: Sequence[Any], given: DataParallelSettings | None) -> DataParallelSettings:
    """What these chunks were wrapped with; of chunks that somebody else wrapped, what is ``given``, or what they say.

    Raises:
        ConfigError: These are no chunks, or something else is given.
    """
    require_chunks(chunks)
    found = next((_wrapped_with[chunk] for chunk in chunks if chunk in _wrapped_with), given)
    if given not in (None, found):
        raise ConfigError(f"the chunks were wrapped with {found}, but here is {given}", hint="leave data_parallel out")
    return found or _said(chunks[0])


def _said(chunk: Any) -> DataParallelSettings:
    """Settings as the wrapper keeps them, itself up to 0.6; the defaults where it keeps none."""
    kept = getattr(chunk, "ddp_config", chunk)
    names = [item.name for item in fields(DataParallelSettings) if hasattr(kept, item.name)]
    return DataParallelSettings(**{name: getattr(kept, name) for name in names})


def zero_grad(chunks: Sequence[Any], optimizer: Any) -> None:
    """Clear gradients before a step: the wrapper's buffers and the optimizer's, in the order that upstream needs.

    Args:
        chunks: Wrapped chunks.
        optimizer: From :func:`mcore_compat.build_optimizer`.

    Raises:
        ConfigError: Arguments of another kind, another model's optimizer, or gradients that are offloaded.
    """
    require_chunks(chunks, wrapped=True)
    require_optimizer(optimizer, chunks)
    require_here(chunks, "zero_grad", "grads")
    clear = zero_grad_seam.bind()
    for chunk in chunks:
        clear(chunk, optimizer.keeps_params_in_grad_buffer)
    optimizer.zero_grad()
    cleared(chunks)


def _check(config: Any, settings: DataParallelSettings) -> None:
    is_config = config is None or hasattr(config, "tensor_model_parallel_size")
    if not is_config or not isinstance(settings, DataParallelSettings):
        found, expected = (settings, "DataParallelSettings") if is_config else (config, "a TransformerConfig")
        raise misplaced(found, expected, "wrap_data_parallel(chunks, settings=mcore_compat.DataParallelSettings(...))")
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
