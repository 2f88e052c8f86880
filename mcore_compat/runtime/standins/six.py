"""``six``: the BERT tokenizer of old checkouts asks it which Python this is."""

from __future__ import annotations

from types import ModuleType

from .build import tree


def build() -> dict[str, ModuleType]:
    """Make ``six`` for Python 3."""
    return tree({"six": {"PY2": False, "PY3": True}})
