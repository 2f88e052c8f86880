"""One change, and helpers to make it."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from packaging.version import Version

from mcore_compat.detect import Facts
from mcore_compat.runtime.patches import Patch

Patcher = Callable[[tuple[str, ...]], Iterable[Patch]]


@dataclass(frozen=True)
class Change:
    """One difference that is taken back.

    Attributes:
        why: What the era does, and what the release does instead.
        until: Last release of the eras that are concerned; empty: all.
        fits: Whether the source of the Megatron that is there differs.
        patches: (attribute policy of configurations) -> replacements; imports what it changes.
    """

    why: str
    until: str
    fits: Callable[[Facts], bool]
    patches: Patcher

    def needed(self, era: str, facts: Facts) -> bool:
        """Whether a program of that era needs it here."""
        return (not self.until or Version(era) <= Version(self.until)) and self.fits(facts)


def always(facts: Facts) -> bool:
    """Every release differs from what programs of the era do, or may."""
    return True


def module(name: str) -> Any:
    """A module of the Megatron that is there."""
    return importlib.import_module(name)


def bound(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Arguments by name, as ``function`` would receive them; defaults left out.

    Raises:
        TypeError: They do not fit.
    """
    return dict(inspect.signature(function).bind(*args, **kwargs).arguments)
