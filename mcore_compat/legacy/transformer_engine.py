"""``megatron.core.transformer.custom_layers.transformer_engine`` before 0.17."""

from __future__ import annotations

import importlib
from typing import Any


def __getattr__(name: str) -> Any:
    return getattr(importlib.import_module("megatron.core.extensions.transformer_engine"), name)
