"""Attributes that are replaced and put back, by one mechanism."""

from __future__ import annotations

from collections.abc import Iterable, MutableMapping
from dataclasses import dataclass
from typing import Any

_ABSENT = object()


@dataclass(frozen=True)
class Patch:
    """One replacement.

    Attributes:
        target: Module, class or mapping that holds the name.
        name: Attribute name, or key of a mapping.
        value: What stands there until :meth:`Patches.revert`.
        why: What would fail otherwise.
    """

    target: Any
    name: Any
    value: Any
    why: str

    @property
    def label(self) -> str:
        """Dotted name for reports."""
        owner = getattr(self.target, "__name__", type(self.target).__name__)
        return f"{owner}.{self.name}"


class Patches:
    """Applies patches and reverts them in the opposite order."""

    def __init__(self) -> None:
        self._undo: list[tuple[Patch, object]] = []

    def apply(self, patches: Iterable[Patch]) -> None:
        """Put every patch in place, remembering what the target's own namespace held."""
        for patch in patches:
            self._undo.append((patch, _own(patch)))
            _put(patch, patch.value)

    def revert(self) -> None:
        """Put back what was there; a name that did not exist on the target itself is deleted."""
        while self._undo:
            patch, old = self._undo.pop()
            _put(patch, old)


def _own(patch: Patch) -> object:
    holder = patch.target if isinstance(patch.target, MutableMapping) else vars(patch.target)
    return holder.get(patch.name, _ABSENT)


def _put(patch: Patch, value: object) -> None:
    if isinstance(patch.target, MutableMapping):
        if value is _ABSENT:
            del patch.target[patch.name]
        else:
            patch.target[patch.name] = value
    elif value is _ABSENT:
        delattr(patch.target, patch.name)
    else:
        setattr(patch.target, patch.name, value)
