"""Axis: how the wrapper's gradient buffer is cleared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mcore_compat.seams._registry import Seam

# (wrapped chunk, optimizer keeps gathered parameters in the gradient buffer) -> None
ClearGradients = Callable[[Any, bool], None]

seam: Seam[ClearGradients] = Seam(
    "zero_grad",
    target="megatron.core.distributed.distributed_data_parallel:DistributedDataParallel.zero_grad_buffer",
)
