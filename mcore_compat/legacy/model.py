"""The two wrappers of ``megatron.model`` that core has as well."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__all__ = ["DistributedDataParallel", "Float16Module"]

if TYPE_CHECKING:
    DistributedDataParallel: Any
    Float16Module: Any

_HOMES = {"DistributedDataParallel": "megatron.core.distributed", "Float16Module": "megatron.core.transformer.module"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
