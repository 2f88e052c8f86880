"""``DistributedDataParallelConfig`` from our settings, for the shapes that take one."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from mcore_compat.contracts import DataParallelSettings
from mcore_compat.seams.keywords import supported


def ddp_config(settings: DataParallelSettings) -> Any:
    """Upstream's config; the wrapper writes into it, so each chunk gets its own.

    Raises:
        FeatureUnavailable: A setting that this release has no field for.
    """
    from megatron.core.distributed import DistributedDataParallelConfig

    wanted = asdict(settings)
    del wanted["disable_bucketing"]
    off = {"num_distributed_optimizer_instances": 1}
    if "overlap_param_gather" not in DistributedDataParallelConfig.__dataclass_fields__:
        del wanted["overlap_param_gather"]  # up to 0.8 the optimizer owns it
    return DistributedDataParallelConfig(
        **supported(DistributedDataParallelConfig, wanted, what="DistributedDataParallelConfig", off=off)
    )
