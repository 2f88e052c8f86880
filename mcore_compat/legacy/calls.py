"""Calls of an era as functions, for programs that name them here instead of calling ``legacy.install()``."""

from __future__ import annotations

import importlib
from typing import Any

from mcore_compat.legacy.changes.schedules import era_schedule
from mcore_compat.seams.zero_grad import seam as zero_grad

__all__ = ["get_forward_backward_func", "zero_grad_buffer"]


def get_forward_backward_func() -> Any:
    """The schedule of this release; takes the era's keywords for shapes, and leaves reported losses alone."""
    return era_schedule(importlib.import_module("megatron.core.pipeline_parallel").get_forward_backward_func())


def zero_grad_buffer(chunk: Any) -> None:
    """Clear the gradient buffers of a wrapped chunk."""
    zero_grad.bind()(chunk, False)
