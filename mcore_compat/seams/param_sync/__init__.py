"""Axis: who gathers updated parameters when that overlaps with the next forward, and so who can be waited for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from mcore_compat.seams._registry import Seam


class ParamSync(NamedTuple):
    """What callers do about an overlapped gather.

    Attributes:
        finish: (wrapped chunks, upstream's optimizer) -> None, after which every rank holds the updated parameters.
        hooks: The same arguments -> one ``param_sync_func`` per chunk for the interleaved schedule.
    """

    finish: Callable[[Sequence[Any], Any], None]
    hooks: Callable[[Sequence[Any], Any], list[Callable[..., None]]]


seam: Seam[Callable[[], ParamSync]] = Seam("param_sync")
WRAPPER_GATHERS = "megatron.core.distributed.distributed_data_parallel:DistributedDataParallel.start_param_sync"
