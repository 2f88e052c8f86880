"""What the flat-flag shapes share."""

from __future__ import annotations

from mcore_compat.contracts import DataParallelSettings
from mcore_compat.seams.keywords import unavailable


def bucket_size(settings: DataParallelSettings) -> dict[str, int]:
    """The keyword, where the caller chose a size; upstream's default otherwise."""
    return {} if settings.bucket_size is None else {"bucket_size": settings.bucket_size}


def refuse(settings: DataParallelSettings, name: str, first: str) -> None:
    """Raise ``FeatureUnavailable`` when a switch that this shape does not have is on."""
    if getattr(settings, name):
        raise unavailable(f"DataParallelSettings({name}=True)", first)
    if settings.num_distributed_optimizer_instances > 1:
        raise unavailable("DataParallelSettings(num_distributed_optimizer_instances > 1)", "0.10.0")
    if settings.pad_buckets_for_high_nccl_busbw:
        raise unavailable("DataParallelSettings(pad_buckets_for_high_nccl_busbw=True)", "0.12.0")
