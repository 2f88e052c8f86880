"""``check``, ``apply``, ``revert``, ``status`` and ``diff``: what the command line does, as functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mcore_compat.detect import Megatron
from mcore_compat.errors import MegatronNotFound, PatchError
from mcore_compat.patching.catalogue import select
from mcore_compat.patching.hunks import unified
from mcore_compat.patching.ledger import FOLDER, Entry, Ledger, read_ledger, record_of
from mcore_compat.patching.outcome import Patch, Result, Step
from mcore_compat.patching.rules import RulePatch
from mcore_compat.patching.stack import standings, without
from mcore_compat.patching.transaction import commit, explained, interrupted, locked, mode_of, recover
from mcore_compat.patching.tree import Tree, open_tree

STATUS_HINT = "mcore-compat patch status --root TREE explains it; patch apply and patch revert bring it to an end"


@dataclass(frozen=True)
class Report:
    """What an operation found and did.

    Attributes:
        root: The tree.
        megatron: The Megatron in it, ``None`` where there is none.
        results: One per patch.
        written: Whether files were changed.
        interrupted: What a killed process left behind; empty: nothing. Only ``status`` looks for it.
    """

    root: Path
    megatron: Megatron | None
    results: tuple[Result, ...]
    written: bool = False
    interrupted: str = ""

    @property
    def is_fine(self) -> bool:
        """Whether every patch ended well. Where one did not, ``apply`` and ``revert`` changed nothing."""
        return all(result.is_fine for result in self.results)


@dataclass(frozen=True)
class Plan:
    """Patches planned on a tree, each on what those before it leave."""

    tree: Tree
    ledger: Ledger
    steps: tuple[Step, ...]

    @property
    def results(self) -> tuple[Result, ...]:
        """One per patch."""
        return tuple(step.result for step in self.steps)


def plan(root: Path, only: Iterable[str] | None = None, files: Sequence[Path] = ()) -> Plan:
    """Plan patches in memory.

    Args:
        root: A Megatron-LM checkout, a fork, an unpacked wheel or a ``site-packages``.
        only: Ids; ``None``: all.
        files: Patches of your own, ``.yaml`` or unified diffs, instead of those of the package.

    Raises:
        ConfigError: No such patch, or no such folder.
        MegatronNotFound: There is none in ``root``, and the patches are made for one.
        PatchError: A patch is broken, or an interrupted transaction comes first.
    """
    tree = open_tree(root)
    _require_whole(tree)
    return _planned(tree, select(only, files))


def require_fine(results: Iterable[Result]) -> None:
    """Raise :class:`PatchError` where a patch does not fit."""
    for result in results:
        if not result.is_fine:
            raise PatchError(
                f"{result.id}: {result.state}: {result.reason}",
                hint="leave it out: mcore-compat patch check shows which fit",
            )


def extend(tree: Tree, patches: Sequence[Patch]) -> tuple[Result, ...]:
    """Plan patches on a tree, on top of what is planned on it already."""
    return _planned(tree, patches).results


def check(root: Path, only: Iterable[str] | None = None, files: Sequence[Path] = ()) -> Report:
    """Say what ``apply`` would do; arguments and errors as for :func:`plan`."""
    made = plan(root, only, files)
    return Report(made.tree.root, made.tree.megatron, made.results)


def diff(root: Path, only: Iterable[str] | None = None, files: Sequence[Path] = ()) -> str:
    """A unified diff of what ``apply`` would change, for ``git apply`` or ``patch -p1``; arguments as for :func:`plan`.

    Bytes that are no UTF-8 are surrogate escapes in it.

    Raises:
        PatchError: Some patch does not fit.
    """
    made = plan(root, only, files)
    require_fine(made.results)
    changes = sorted(made.tree.changes.items())
    return "".join(unified(change.before, change.after, path) for path, change in changes)


def apply(
    root: Path, only: Iterable[str] | None = None, files: Sequence[Path] = (), *, dry_run: bool = False
) -> Report:
    """Apply patches as one transaction: where one of them does not fit, nothing is written.

    An interrupted ``apply`` is finished first, an interrupted ``revert`` is taken back.

    Args:
        root: As for :func:`plan`.
        only: As for :func:`plan`.
        files: As for :func:`plan`.
        dry_run: Write nothing.

    Raises:
        PatchError: As for :func:`plan`, or the tree cannot be written; it is then as it was.
    """
    if dry_run:
        return check(root, only, files)
    tree, patches = open_tree(root), select(only, files)
    with locked(tree):
        recover(tree, "apply")
        made = _planned(tree, patches)
        written = all(result.is_fine for result in made.results) and _write(made)
    return Report(tree.root, tree.megatron, made.results, written)


def revert(root: Path, only: Iterable[str] | None = None, *, dry_run: bool = False) -> Report:
    """Take applied patches back as one transaction, last one first.

    An interrupted ``revert`` is finished first, an interrupted ``apply`` is taken back. Lines that were edited since
    are kept, unless they touch a patched place: that is a conflict, and nothing is written.

    Args:
        root: The tree.
        only: Ids; ``None``: all that the ledger holds.
        dry_run: Write nothing.

    Raises:
        PatchError: The ledger does not hold such a patch, or the tree cannot be written; it is then as it was.
    """
    tree = open_tree(root)
    with locked(tree):
        if dry_run:
            _require_whole(tree)
        else:
            recover(tree, "revert")
        ledger = read_ledger(tree)
        chosen = _chosen(ledger, only)
        stack, left, results = without(ledger, chosen, tree)
        write = bool(chosen) and not dry_run and all(result.is_fine for result in results)
        if write:
            commit(tree, "revert", stack.changes, left.as_file())
    return Report(tree.root, tree.megatron, tuple(results), write)


def status(root: Path) -> Report:
    """Say what the ledger holds and whether it is still so, and what a killed process left behind.

    Raises:
        PatchError: The ledger or a journal is damaged.
    """
    tree = open_tree(root)
    results = tuple(standings(read_ledger(tree), tree).values())
    return Report(tree.root, tree.megatron, results, interrupted=explained(tree))


def _require_whole(tree: Tree) -> None:
    if work := interrupted(tree):
        raise PatchError(f"{work.name} of {tree.root} was interrupted half-way", hint=STATUS_HINT)


def _planned(tree: Tree, patches: Sequence[Patch]) -> Plan:
    if tree.megatron is None and any(isinstance(patch, RulePatch) for patch in patches):
        raise MegatronNotFound(
            f"found no megatron/core under {tree.root}", hint="--root takes the directory that holds megatron/"
        )
    ledger = read_ledger(tree)
    standing = standings(ledger, tree)
    return Plan(tree, ledger, tuple(_step(patch, tree, ledger, standing) for patch in patches))


def _step(patch: Patch, tree: Tree, ledger: Ledger, standing: Mapping[str, Result]) -> Step:
    """Plan one patch; what the ledger says counts as long as the files bear it out."""
    entry, held = ledger.get(patch.id), standing.get(patch.id)
    if entry is not None and held is not None and held.state == "applied":
        return Step(_recorded(patch, entry), patch.digest)
    step = patch.plan(tree)
    if held is not None and held.state == "conflict" and step.result.state == "applied":
        # It may fit on its own result: making it twice is worse than asking.
        reason = f"the ledger has it, but {held.reason}; where the files were replaced, delete {tree.root / FOLDER}"
        return Step(replace(held, reason=reason), patch.digest)
    for path, change in step.changes.items():
        tree.plan(path, change)
    return step


def _recorded(patch: Patch, entry: Entry) -> Result:
    where = tuple(record.path for record in entry.files)
    if entry.digest == patch.digest:
        return Result(patch.id, "already applied", where, "the ledger has it, and the files hold it")
    return Result(
        patch.id, "conflict", where, f"another version of it is applied: patch revert --only {patch.id}, then apply"
    )


def _write(made: Plan) -> bool:
    """Write what was planned; whether there was anything."""
    applied = [step for step in made.steps if step.result.state == "applied"]
    if not applied:
        return False
    tree = made.tree
    # Whatever the ledger said about these was no longer so.
    kept = made.ledger.without(frozenset(step.result.id for step in applied))
    ledger = Ledger((*kept.entries, *(_entry(step, tree) for step in applied)))
    commit(tree, "apply", tree.changes, ledger.as_file())
    return True


def _entry(step: Step, tree: Tree) -> Entry:
    """What to write down about a planned patch."""
    changes = sorted(step.changes.items())
    records = (
        record_of(path, replace(change, mode=mode_of(tree.root / path) if change.after is None else None))
        for path, change in changes
    )
    return Entry(step.result.id, step.digest, tuple(records))


def _chosen(ledger: Ledger, only: Iterable[str] | None) -> frozenset[str]:
    applied = [entry.id for entry in ledger.entries]
    wanted = frozenset(applied if only is None else only)
    if unknown := sorted(wanted - {*applied}):
        raise PatchError(
            f"the ledger has no patch {unknown[0]!r}; it has {', '.join(applied) or 'none'}",
            hint="mcore-compat patch status --root TREE",
        )
    return wanted
