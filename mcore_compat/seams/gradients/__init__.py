"""Axis: where the data-parallel wrapper keeps its gradient buffers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from mcore_compat.seams._registry import Seam

if TYPE_CHECKING:
    import torch

# wrapped chunk -> every tensor that holds gradients, each gradient once
GradientStorage = Callable[[Any], "Iterator[torch.Tensor]"]

seam: Seam[GradientStorage] = Seam("gradients")
