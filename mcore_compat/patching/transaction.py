"""Writes many files as one: all of them or none, also when the process is killed half-way.

Everything new and everything old is staged beside the ledger first, the ledger among it; then a journal says what is to
happen; then files are renamed into place. Before the journal is there, nothing has happened; once it is, the staged
files are enough to finish or to take back. Renames need no space: a full disk stops a transaction before it begins.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from mcore_compat.errors import PatchError
from mcore_compat.patching.ledger import FOLDER, NAME, digest
from mcore_compat.patching.tree import Change, Tree, read_file

_JOURNAL = f"{FOLDER}/journal.json"
# The journal's name once its work is being taken back, which must not turn round again: its files are used up.
_UNDOING = f"{FOLDER}/undo.json"
_STAGED = f"{FOLDER}/staged"
Action = Literal["apply", "revert"]


@dataclass(frozen=True)
class _Planned:
    path: str
    before: str | None
    after: str | None


@dataclass(frozen=True)
class Work:
    """A transaction that has begun.

    Attributes:
        action: What it is.
        files: What it writes, the ledger last; staged under their number.
        undoing: Whether it is being taken back.
    """

    action: Action
    files: tuple[_Planned, ...]
    undoing: bool = False

    @property
    def name(self) -> str:
        """What it is, in words."""
        return "an apply" if self.action == "apply" else "a revert"


@contextmanager
def locked(tree: Tree) -> Iterator[None]:
    """Keep other processes of this package from changing the tree meanwhile.

    Raises:
        PatchError: One of them does so already.
    """
    folder = os.open(tree.root, os.O_RDONLY)
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise PatchError(f"another process is patching {tree.root}", hint="wait for it, then try again") from error
        yield
    finally:
        os.close(folder)


def commit(tree: Tree, action: Action, changes: Mapping[str, Change], ledger: bytes | None) -> None:
    """Write all changes, and the ledger.

    Args:
        tree: Where, locked.
        action: What it is, for whoever finds it interrupted.
        changes: By path.
        ledger: The ledger file as it is to be; ``None``: none.

    Raises:
        PatchError: Something cannot be written; the tree is then as it was.
    """
    everything = [*sorted(changes.items()), (NAME, Change(read_file(tree.root / NAME), ledger))]
    work = Work(action, tuple(_Planned(path, digest(each.before), digest(each.after)) for path, each in everything))
    try:
        _stage(tree.root, work, [each for _, each in everything])
    except BaseException as error:
        _clear(tree.root)
        raise _failed(tree, error) from error
    try:
        finish(tree, work)
    except BaseException as error:
        undo(tree, work)
        raise _failed(tree, error) from error


def interrupted(tree: Tree) -> Work | None:
    """The transaction that a killed process left behind.

    Raises:
        PatchError: Its journal cannot be read, or names a file out of the tree.
    """
    for name in (_JOURNAL, _UNDOING):
        data = read_file(tree.root / name)
        if data is not None:
            return _read_journal(tree, name, data)
    return None


def recover(tree: Tree, action: Action) -> None:
    """Bring an interrupted transaction to the end that ``action`` asks for, and clear what one left that never began.

    Raises:
        PatchError: A file was edited in between.
    """
    work = interrupted(tree)
    if work is None:
        _tidy(tree.root)
    elif work.action == action and not work.undoing:
        finish(tree, work)
    else:
        undo(tree, work)


def finish(tree: Tree, work: Work) -> None:
    """Do what is left of ``work``."""
    _require_unedited(tree, work)
    for number, each in enumerate(work.files):
        _place(tree.root, each.path, each.after, f"{number}.new")
    _clear(tree.root)


def undo(tree: Tree, work: Work) -> None:
    """Take back what is done of ``work``."""
    _require_unedited(tree, work)
    with suppress(FileNotFoundError):
        (tree.root / _JOURNAL).rename(tree.root / _UNDOING)
    for number, each in enumerate(work.files):
        _place(tree.root, each.path, each.before, f"{number}.old")
    _clear(tree.root)


def explained(tree: Tree) -> str:
    """What a killed process left behind; empty: nothing.

    Raises:
        PatchError: As for :func:`interrupted`.
    """
    work = interrupted(tree)
    if work is None:
        left = (tree.root / _STAGED).exists() or ((tree.root / FOLDER).exists() and not (tree.root / NAME).exists())
        return "something was interrupted before it began or after it ended: no file is half-way" if left else ""
    done = sum(digest(read_file(tree.root / each.path)) == each.after for each in work.files)
    how = "being taken back" if work.undoing else "interrupted"
    return f"{work.name} was {how}: {done} of {len(work.files)} files are written, counting the ledger"


def mode_of(path: Path) -> int | None:
    """The permission bits of a file; ``None``: no such file."""
    return stat.S_IMODE(path.stat().st_mode) if path.exists() else None


def _read_journal(tree: Tree, name: str, data: bytes) -> Work:
    try:
        journal = json.loads(data)
        files = tuple(_Planned(**each) for each in journal["files"])
        for each in files:
            if each.path != NAME:
                tree.locate(each.path)
        return Work(journal["action"], files, undoing=name == _UNDOING)
    except (ValueError, KeyError, TypeError) as error:
        raise PatchError(
            f"{tree.root / name} is no journal: {error!r}",
            hint=f"restore the files of the tree, then delete {tree.root / FOLDER}",
        ) from error


def _stage(root: Path, work: Work, changes: list[Change]) -> None:
    staged = root / _STAGED
    shutil.rmtree(staged, ignore_errors=True)
    staged.mkdir(parents=True)
    (root / FOLDER / ".gitignore").write_text("*\n", encoding="utf-8")
    for number, (each, change) in enumerate(zip(work.files, changes, strict=True)):
        for name, data in ((f"{number}.new", change.after), (f"{number}.old", change.before)):
            if data is not None:
                _write_like(root / each.path, staged / name, data, change.mode)
    journal = staged / "journal.json"
    journal.write_text(json.dumps(asdict(work), indent=1), encoding="utf-8")
    journal.replace(root / _JOURNAL)


def _write_like(original: Path, path: Path, data: bytes, mode: int | None) -> None:
    """Write ``data`` with the owner and mode of ``original``, or with ``mode`` where that does not exist."""
    path.write_bytes(data)
    if original.exists():
        held = original.stat()
        # Root may patch what another user owns; nobody else can, or needs to, change the owner.
        with suppress(PermissionError):
            os.chown(path, held.st_uid, held.st_gid)
        path.chmod(stat.S_IMODE(held.st_mode))
    elif mode is not None:
        path.chmod(mode)


def _place(root: Path, path: str, wanted: str | None, staged: str) -> None:
    """Make the file hold what is staged, unless it does so already."""
    target = root / path
    if digest(read_file(target)) == wanted:
        return
    if wanted is not None:
        target.parent.mkdir(parents=True, exist_ok=True)
        (root / _STAGED / staged).replace(target)
        return
    target.unlink()
    for parent in target.relative_to(root).parents:
        # Folders left empty go, as with git.
        with suppress(OSError):
            (root / parent).rmdir()


def _require_unedited(tree: Tree, work: Work) -> None:
    for each in work.files:
        if digest(read_file(tree.root / each.path)) not in (each.before, each.after):
            raise PatchError(
                f"{tree.root / each.path} was edited while {work.name} was interrupted half-way",
                hint=f"put the edit aside and try again; {tree.root / _STAGED} holds the files before and after",
            )


def _clear(root: Path) -> None:
    (root / _JOURNAL).unlink(missing_ok=True)
    (root / _UNDOING).unlink(missing_ok=True)
    _tidy(root)


def _tidy(root: Path) -> None:
    """Remove what is staged, and the folder where it holds no ledger."""
    shutil.rmtree(root / (_STAGED if (root / NAME).exists() else FOLDER), ignore_errors=True)


def _failed(tree: Tree, error: BaseException) -> BaseException:
    if not isinstance(error, OSError):
        return error
    return PatchError(
        f"cannot write to {tree.root}: {error.strerror or error}; nothing was changed",
        hint="make room or give permission, then try again",
    )
