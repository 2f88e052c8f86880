"""What the ledger says, held against the files: whether it is still so, and what they are without it.

Patches lie on top of each other. Each is looked at with those above it taken off, in memory, so that two patches on one
function do not take each other for edits of the user.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from mcore_compat.patching.hunks import Misfit
from mcore_compat.patching.ledger import Entry, FileRecord, Ledger, digest, record_of
from mcore_compat.patching.outcome import Result
from mcore_compat.patching.tree import Change, Tree


@dataclass
class Stack:
    """The files of a tree, patches taken off and put on in memory.

    Attributes:
        tree: Read only.
        held: Files that differ from the tree, by path.
        modes: Modes of files that come back.
    """

    tree: Tree
    held: dict[str, bytes | None] = field(default_factory=dict)
    modes: dict[str, int | None] = field(default_factory=dict)

    def take_off(self, entry: Entry) -> Result:
        """Take a patch off, or leave all as it is where it was edited since."""
        where = tuple(record.path for record in entry.files)
        if all(digest(self._now(record)) == record.before for record in entry.files):
            return Result(entry.id, "reverted", where, "the files were put back by other means")
        undone = {record.path: record.undone(self._now(record)) for record in entry.files}
        for path, data in undone.items():
            if isinstance(data, Misfit):
                return _conflict(entry, path, data)
        edited = [record.path for record in entry.files if digest(self._now(record)) != record.after]
        self.modes |= {record.path: record.mode for record in entry.files}
        self.held |= undone  # type: ignore[arg-type]  # no misfit is left
        reason = f"edited since, but not where it is: {', '.join(edited)}" if edited else "as it was applied"
        return Result(entry.id, "applied", where, reason)

    def put_on(self, entry: Entry) -> Entry | Result:
        """Put a patch back on files that may have changed below it: its entry anew, or where it does not fit."""
        records = []
        for record in entry.files:
            now = self._now(record)
            redone = record.redone(now)
            if isinstance(redone, Misfit):
                return _conflict(entry, record.path, redone)
            records.append(record_of(record.path, Change(now, redone, record.mode)))
            self.held[record.path] = redone
        return replace(entry, files=tuple(records))

    @property
    def changes(self) -> dict[str, Change]:
        """Files that differ from the tree."""
        pairs = {path: Change(self.tree.read(path), data, self.modes.get(path)) for path, data in self.held.items()}
        return {path: change for path, change in pairs.items() if change.before != change.after}

    def _now(self, record: FileRecord) -> bytes | None:
        return self.held[record.path] if record.path in self.held else self.tree.read(record.path)


def standings(ledger: Ledger, tree: Tree) -> dict[str, Result]:
    """Per applied patch, in order: ``applied``, ``reverted`` where its files were put back, or ``conflict``."""
    stack = Stack(tree)
    found = {entry.id: stack.take_off(entry) for entry in reversed(ledger.entries)}
    return {entry.id: found[entry.id] for entry in ledger.entries}


def without(ledger: Ledger, gone: Iterable[str], tree: Tree) -> tuple[Stack, Ledger, list[Result]]:
    """Take patches off from under those that stay.

    Returns:
        The files, the ledger of what stays, and a result for each patch that goes or is in the way.
    """
    stack, going, results = Stack(tree), {*gone}, []
    lifted: list[Entry] = []
    stuck: list[Entry] = []
    for entry in reversed(ledger.entries):
        result = stack.take_off(entry)
        if entry.id in going:
            results.append(replace(result, state="reverted") if result.is_fine else result)
        else:
            (lifted if result.state == "applied" else stuck).append(entry)
    kept = {entry.id: entry for entry in stuck}
    for entry in reversed(lifted):
        back = stack.put_on(entry)
        if isinstance(back, Entry):
            kept[entry.id] = back
        else:
            results.append(replace(back, reason=f"lies on the same lines, revert it too: {back.reason}"))
    return stack, Ledger(tuple(kept[entry.id] for entry in ledger.entries if entry.id in kept)), results


def _conflict(entry: Entry, path: str, misfit: Misfit) -> Result:
    reason = f"{path} was edited since: line {misfit.line}: expected {misfit.expected!r}, found {misfit.found!r}"
    return Result(entry.id, "conflict", (f"{path}:{misfit.line}",), reason)
