"""The collections of process groups of 0.12 to 0.14."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    Collection: Any


def __getattr__(name: str) -> Any:
    if name != "Collection":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module("megatron.core.process_groups_config").ProcessGroupCollection
