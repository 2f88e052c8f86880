"""DDP takes a config object and still the two groups.

Upstream: 0.8.0 reads the groups from ``parallel_state``.
Drop when: the floor passes 0.7.0.
"""

from __future__ import annotations

from typing import Any

from mcore_compat.contracts import DataParallelSettings
from mcore_compat.seams._registry import Shape
from mcore_compat.seams.data_parallel import WrapChunk, seam
from mcore_compat.seams.data_parallel._config import ddp_config


@seam.variant("config_and_groups", since="0.7.0", shape=Shape(accepts={"ddp_config", "data_parallel_group"}))
def bind() -> WrapChunk:
    """Bind upstream's class."""
    from megatron.core import parallel_state
    from megatron.core.distributed import DistributedDataParallel

    def wrap(chunk: Any, config: Any, settings: DataParallelSettings, disable_bucketing: bool) -> Any:
        return DistributedDataParallel(
            config,
            ddp_config(settings),
            chunk,
            data_parallel_group=parallel_state.get_data_parallel_group(with_context_parallel=True),
            expert_data_parallel_group=parallel_state.get_data_modulo_expert_parallel_group(),
            disable_bucketing=disable_bucketing,
        )

    return wrap
