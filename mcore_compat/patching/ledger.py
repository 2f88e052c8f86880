"""``.mcore-compat/ledger.json``: what was applied to a tree, and how to take it back."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from mcore_compat.errors import PatchError
from mcore_compat.patching.hunks import Hunk, Misfit, Spot, bytes_of, fit, hunks_of, lines_of, parse, put, unified
from mcore_compat.patching.tree import Change, Tree

FOLDER = ".mcore-compat"
NAME = f"{FOLDER}/ledger.json"
SCHEMA_VERSION = 1
_NOTHING = type(None)
# Fields of a record as JSON has them.
_KINDS: Mapping[str, tuple[type, ...]] = {
    "path": (str,),
    "before": (str, _NOTHING),
    "after": (str, _NOTHING),
    "reverse": (str,),
    "mode": (int, _NOTHING),
}


@dataclass(frozen=True)
class FileRecord:
    """One file of an applied patch.

    Attributes:
        path: Relative to the tree.
        before: sha256 of what it held; ``None``: there was no such file.
        after: sha256 of what it holds since; ``None``: it is gone.
        reverse: Unified diff that takes the patch back.
        mode: Mode of a file that the patch deleted.
    """

    path: str
    before: str | None
    after: str | None
    reverse: str
    mode: int | None = None

    def undone(self, held: bytes | None) -> bytes | Misfit | None:
        """What the file holds without the patch, given what it holds with it; or where that does not fit."""
        return _moved(held, self.after, self.before, self.hunks)

    def redone(self, held: bytes | None) -> bytes | Misfit | None:
        """What the file holds with the patch, given what it holds without it; or where that does not fit."""
        return _moved(held, self.before, self.after, [hunk.reversed for hunk in self.hunks])

    @cached_property
    def hunks(self) -> list[Hunk]:
        """Those of ``reverse``.

        Raises:
            PatchError: It is no unified diff.
        """
        return hunks_of(parse(self.reverse, self.path)[0])


@dataclass(frozen=True)
class Entry:
    """One applied patch; ``digest`` is the sha256 of its text."""

    id: str
    digest: str
    files: tuple[FileRecord, ...]


@dataclass(frozen=True)
class Ledger:
    """Applied patches, first one first."""

    entries: tuple[Entry, ...] = ()

    def get(self, patch_id: str) -> Entry | None:
        """The entry of that patch."""
        return next((entry for entry in self.entries if entry.id == patch_id), None)

    def without(self, ids: frozenset[str]) -> Ledger:
        """The ledger without these patches."""
        return replace(self, entries=tuple(entry for entry in self.entries if entry.id not in ids))

    def as_file(self) -> bytes | None:
        """What its file holds; ``None``: there is none where nothing is applied."""
        data = {"schema_version": SCHEMA_VERSION, "patches": [asdict(entry) for entry in self.entries]}
        return json.dumps(data, indent=1).encode() if self.entries else None


def read_ledger(tree: Tree) -> Ledger:
    """The ledger of ``tree``; an empty one where there is none.

    Raises:
        PatchError: It is no ledger, of another schema version, or names a file out of the tree.
    """
    path = tree.root / NAME
    if not path.exists():
        return Ledger()
    try:
        ledger = _parsed(json.loads(path.read_text(encoding="utf-8")))
        for record in (record for entry in ledger.entries for record in entry.files):
            tree.locate(record.path)
            _ = record.hunks
    except PatchError as error:
        raise _refusal(path, f"is no ledger: {error.args[0]}") from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise _refusal(path, f"is no ledger: {error!r}") from error
    return ledger


def _parsed(data: Mapping[str, Any]) -> Ledger:
    if data["schema_version"] != SCHEMA_VERSION:
        raise ValueError(f"schema version {data['schema_version']!r}, expected {SCHEMA_VERSION}")
    return Ledger(
        tuple(
            Entry(str(entry["id"]), str(entry["digest"]), tuple(map(_record, entry["files"])))
            for entry in data["patches"]
        )
    )


def _record(data: Mapping[str, Any]) -> FileRecord:
    for name, kinds in _KINDS.items():
        if not isinstance(data.get(name), kinds):
            raise TypeError(f"{name} of a file is {data.get(name)!r}")
    return FileRecord(**data)


def record_of(path: str, change: Change) -> FileRecord:
    """What to write down about one changed file; ``change.mode`` is that of a file that is deleted."""
    reverse = unified(change.after, change.before, path)
    return FileRecord(path, digest(change.before), digest(change.after), reverse, change.mode)


def digest(data: bytes | None) -> str | None:
    """sha256 of a file's content; ``None`` for no file."""
    return None if data is None else hashlib.sha256(data).hexdigest()


def _moved(held: bytes | None, old: str | None, new: str | None, hunks: list[Hunk]) -> bytes | Misfit | None:
    """``held`` with the hunks in place; ``old`` and ``new`` are the digests it had and gets where nobody edited it."""
    if old is None:
        made = bytes_of(line for hunk in hunks for line in hunk.new)
        return made if held is None else Misfit(1, "no such file", "a file")
    if held is None:
        return Misfit(1, "a file", "no such file")
    if new is None:
        return None if digest(held) == old else Misfit(1, "the file as it was", "an edited one")
    lines = lines_of(held)
    found = fit(lines, hunks, str)
    spots = [spot for spot in found if isinstance(spot, Spot)]
    misfit = next((spot for spot in found if isinstance(spot, Misfit)), None)
    return misfit or bytes_of(put(lines, hunks, spots, None))


def _refusal(path: Path, why: str) -> PatchError:
    return PatchError(
        f"{path} {why}",
        hint=f"restore it, or delete the folder {path.parent} to forget what was applied (the files stay as they are)",
    )
