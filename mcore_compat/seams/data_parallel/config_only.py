"""DDP takes a config object and finds the groups of ``init_parallel`` itself.

The group objects that later releases accept (``grad_comm_pgs`` and ``model_comm_pgs`` from 0.13.0, ``pg_collection``
from 0.15.0, ``full_param_layout`` from 0.18.0) are optional, and left out they mean exactly these groups.

Upstream: 0.8.0 dropped the group arguments.
"""

from __future__ import annotations

from typing import Any

from mcore_compat.contracts import DataParallelSettings
from mcore_compat.seams._registry import Shape
from mcore_compat.seams.data_parallel import WrapChunk, seam
from mcore_compat.seams.data_parallel._config import ddp_config


@seam.variant("config_only", since="0.8.0", shape=Shape(accepts={"ddp_config"}, lacks={"data_parallel_group"}))
def bind() -> WrapChunk:
    """Bind upstream's class."""
    from megatron.core.distributed import DistributedDataParallel

    def wrap(chunk: Any, config: Any, settings: DataParallelSettings, disable_bucketing: bool) -> Any:
        return DistributedDataParallel(config, ddp_config(settings), chunk, disable_bucketing=disable_bucketing)

    return wrap
