"""Upstream signatures that two releases do not share, read from their sources by griffe."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import griffe

PACKAGE = "megatron.core"
# What calls a seam is written ``module:name``; griffe knows one spelling, the defining module's.
Places = Mapping[str, Iterable[str]]


@dataclass(frozen=True)
class Change:
    """One signature that differs.

    Attributes:
        place: Dotted name of the function, or of the class whose constructor it is.
        changes: ``+name`` and ``-name`` for parameters, ``name: a -> b`` for defaults, ``order``, ``removed``.
        seams: Seams that choose by this signature or call it.
    """

    place: str
    changes: tuple[str, ...]
    seams: tuple[str, ...]


class Signatures:
    """Signatures of a tree's public functions and classes.

    Args:
        root: Folder that holds ``megatron/``.
    """

    def __init__(self, root: Path) -> None:
        self._loader = griffe.GriffeLoader(search_paths=[root], allow_inspection=False)
        package = self._loader.load(PACKAGE, try_relative_path=False)
        assert isinstance(package, griffe.Module)
        self.found: dict[str, griffe.Parameters] = dict(_signatures(package))

    def defining(self, place: str) -> str:
        """``module:name`` as the dotted name under which :attr:`found` has it, whoever re-exports it."""
        dotted = place.replace(":", ".")
        try:
            found: str = self._loader.modules_collection[dotted].canonical_path
        except (KeyError, griffe.AliasResolutionError):
            return dotted
        return found.removesuffix(".__init__")


def drift(old: Signatures, new: Signatures, places: Places) -> list[Change]:
    """Signatures that changed or went, those that concern a seam first.

    Args:
        old: One release.
        new: The other.
        places: Seam to the places, ``module:name`` or ``module:Class.name``, that it looks at.
    """
    concerned: dict[str, set[str]] = {}
    for seam, spots in places.items():
        for place in {tree.defining(spot) for spot in spots for tree in (old, new)}:
            concerned.setdefault(place, set()).add(seam)
    changes = [
        Change(place, words, tuple(sorted(concerned.get(place, ()))))
        for place, before in old.found.items()
        if (words := tuple(_differences(before, new.found.get(place))))
    ]
    return sorted(changes, key=lambda change: (not change.seams, change.place))


def _signatures(parent: griffe.Module | griffe.Class) -> Iterator[tuple[str, griffe.Parameters]]:
    for name, member in parent.members.items():
        if name.startswith("_") or member.is_alias:
            continue
        if isinstance(member, griffe.Function | griffe.Class):
            yield member.path, member.parameters
        if isinstance(member, griffe.Module | griffe.Class):
            yield from _signatures(member)


def _differences(old: griffe.Parameters, new: griffe.Parameters | None) -> Iterator[str]:
    if new is None:
        yield "removed"
        return
    before, after = ({p.name: p for p in parameters} for parameters in (old, new))
    yield from (f"+{name}" for name in after if name not in before)
    yield from (f"-{name}" for name in before if name not in after)
    shared = [name for name in before if name in after]
    for name in shared:
        if _default(before[name]) != _default(after[name]):
            yield f"{name}: {_default(before[name])} -> {_default(after[name])}"
    if shared != [name for name in after if name in before]:
        yield "order"


def _default(parameter: griffe.Parameter) -> str:
    return "required" if parameter.required else str(parameter.default)
