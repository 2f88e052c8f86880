"""``tools``: a folder beside ``megatron`` in old checkouts, absent when only ``megatron`` is on the path."""

from __future__ import annotations

from types import ModuleType

from .build import refuse, tree


def build() -> dict[str, ModuleType]:
    """Make ``tools.retro.utils``."""
    utils = {"get_args_path": refuse("get_args_path", "the tools folder of the Megatron-LM checkout")}
    return tree({"tools": {}, "tools.retro": {}, "tools.retro.utils": utils})
