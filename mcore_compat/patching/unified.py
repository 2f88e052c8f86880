"""Plans a unified diff: every hunk must fit line by line, wherever it moved to, or nothing changes."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from unidiff import patch as unidiff

from mcore_compat.errors import PatchError
from mcore_compat.patching.hunks import Hunk, Misfit, Spot, bytes_of, fit, hunks_of, lines_of, parse, put
from mcore_compat.patching.outcome import Result, State, Step
from mcore_compat.patching.tree import Change, Tree

_NOTHING = "/dev/null"
_EXECUTABLE = "100755"
_PLAIN_MODES = (None, "100644", _EXECUTABLE)


@dataclass(frozen=True)
class DiffPatch:
    """A unified diff that can be planned."""

    id: str
    digest: str
    files: unidiff.PatchSet

    def plan(self, tree: Tree) -> Step:
        """Say what it would do to ``tree``; changes nothing.

        Raises:
            PatchError: It needs what a diff of lines cannot say, or a path leads out of the tree.
        """
        verdicts = [_judge(file, tree) for file in self.files]
        state = _overall([verdict.state for verdict in verdicts])
        told = verdicts if state in ("applied", "already applied") else [v for v in verdicts if v.state != "applied"]
        where = tuple(place for verdict in told for place in verdict.where)
        changes = {path: change for verdict in verdicts for path, change in verdict.changes}
        reason = "\n".join(verdict.reason for verdict in told)
        return Step(Result(self.id, state, where, reason), self.digest, changes if state == "applied" else {})


@dataclass(frozen=True)
class _Verdict:
    state: State
    where: tuple[str, ...]
    reason: str
    changes: tuple[tuple[str, Change], ...] = ()


def read_diff(path: Path) -> DiffPatch:
    """Read a ``.patch`` or ``.diff`` file; its name without the ending is the patch's id.

    Raises:
        PatchError: It cannot be read or is no unified diff.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise PatchError(f"cannot read {path}: {error.strerror}", hint="give the path of a unified diff") from error
    text = data.decode("utf-8", "surrogateescape")
    if text.count("\n") == text.count("\r\n"):
        # Then it is how the patch was stored, and says nothing about the files.
        text = text.replace("\r\n", "\n")
    return DiffPatch(path.stem, hashlib.sha256(data).hexdigest(), parse(text, str(path)))


def _overall(states: list[State]) -> State:
    if len(set(states)) == 1:
        return states[0]
    return "conflict" if {"applied", "already applied", "conflict"} & {*states} else "not applicable"


def _judge(file: unidiff.PatchedFile, tree: Tree) -> _Verdict:
    _refuse_unreadable(file)
    source, target = (_located(name, tree) for name in (file.source_file, file.target_file))
    hunks = hunks_of(file)
    if source and target and _says(file, "rename from "):
        return _judge_rename(source, target, tree, hunks)
    # `diff -u x.orig x` names two files and means one of them.
    there = (name for name in (target, source) if name and tree.read(name) is not None)
    return _judge_one(file, next(there, target or source or ""), tree, hunks)


def _says(file: unidiff.PatchedFile, start: str) -> bool:
    return any(line.startswith(start) for line in file.patch_info or ())


def _refuse_unreadable(file: unidiff.PatchedFile) -> None:
    modes = (file.source_mode, file.target_mode)
    changed = None not in modes and modes[0] != modes[1]
    if file.is_binary_file or changed or not {*modes} <= {*_PLAIN_MODES} or _says(file, "copy from "):
        raise PatchError(
            f"{file.path}: binary content, links, copies and changes of mode cannot be patched by lines",
            hint="take that part out of the patch and make it by hand",
        )


def _located(name: str, tree: Tree) -> str | None:
    if name == _NOTHING:
        return None
    plain = name.removeprefix("a/") if name.startswith("a/") else name.removeprefix("b/")
    return tree.locate(plain)


def _judge_one(file: unidiff.PatchedFile, path: str, tree: Tree, hunks: list[Hunk]) -> _Verdict:
    data = tree.read(path)
    if file.target_file == _NOTHING:
        return _judge_deletion(path, data, hunks)
    if file.source_file == _NOTHING or (data is None and file.is_added_file):
        return _judge_creation(path, data, hunks, 0o755 if file.target_mode == _EXECUTABLE else None)
    if data is None:
        return _Verdict("not applicable", (path,), f"there is no {path}, which {_count(hunks)} would change")
    return _judge_hunks(path, data, hunks)


def _judge_creation(path: str, data: bytes | None, hunks: list[Hunk], mode: int | None) -> _Verdict:
    made = bytes_of(line for hunk in hunks for line in hunk.new)
    if data is None:
        return _Verdict("applied", (path,), f"{path} is new", ((path, Change(None, made, mode)),))
    if data == made:
        return _Verdict("already applied", (path,), f"{path} is there")
    return _Verdict("conflict", (path,), f"{path} is to be new, and is there with other content")


def _judge_deletion(path: str, data: bytes | None, hunks: list[Hunk]) -> _Verdict:
    if data is None:
        return _Verdict("already applied", (path,), f"{path} is gone")
    verdict = _judge_hunks(path, data, hunks)
    left = [change.after for _, change in verdict.changes]
    if left and left != [b""]:
        return _Verdict("conflict", (path,), f"{path} is to be deleted, and holds more than the patch takes away")
    gone = tuple((name, Change(change.before, None)) for name, change in verdict.changes)
    return _Verdict(verdict.state, verdict.where, verdict.reason, gone)


def _judge_rename(source: str, target: str, tree: Tree, hunks: list[Hunk]) -> _Verdict:
    data, there = tree.read(source), tree.read(target)
    if data is None and there is not None:
        return _Verdict("already applied", (target,), f"{target} is there, {source} is gone")
    if data is None or there is not None:
        return _Verdict("conflict", (source,), f"cannot rename {source} to {target}: there must be the first one only")
    verdict = _judge_hunks(source, data, hunks) if hunks else _Verdict("applied", (source,), f"{source} is renamed")
    if verdict.state != "applied":
        return verdict
    after = verdict.changes[0][1].after if hunks else data
    moves = ((source, Change(data, None)), (target, Change(None, after)))
    return _Verdict("applied", verdict.where, f"{source} becomes {target}", moves)


def _judge_hunks(path: str, data: bytes, hunks: list[Hunk]) -> _Verdict:
    lines = lines_of(data)
    found = fit(lines, hunks, _content)
    spots = [spot for spot in found if isinstance(spot, Spot)]
    if len(spots) == len(hunks):
        newline = "\r\n" if any(line.endswith("\r\n") for line in lines[:1]) else "\n"
        after = bytes_of(put(lines, hunks, spots, newline))
        where = tuple(f"{path}:{spot.index + 1}" for spot in spots)
        return _Verdict("applied", where, f"{_count(hunks)} in {path}", ((path, Change(data, after)),))
    back = fit(lines, [hunk.reversed for hunk in hunks], _content)
    if all(isinstance(spot, Spot) for spot in back):
        return _Verdict("already applied", (path,), f"{path} holds {_count(hunks)} already")
    return _misfitting(path, found, back)


def _misfitting(path: str, found: Sequence[Spot | Misfit], back: Sequence[Spot | Misfit]) -> _Verdict:
    """Every hunk that does not fit, and which others would."""
    numbered = [*enumerate(zip(found, back, strict=True), 1)]
    fits = [number for number, (spot, _) in numbered if isinstance(spot, Spot)]
    there = [n for n, (spot, made) in numbered if isinstance(spot, Misfit) and isinstance(made, Spot)]
    misfits = [(n, spot) for n, (spot, _) in numbered if isinstance(spot, Misfit) and n not in there]
    told = [
        f"{path}: hunk {n} does not fit at line {m.line}: expected {m.expected!r}, found {m.found!r}"
        for n, m in misfits
    ]
    told += [f"{path}: {_hunks(there)} there already"] if there else []
    told += [f"{path}: {_hunks(fits)} would fit" if fits else f"{path}: no other hunk would fit"]
    where = tuple(f"{path}:{misfit.line}" for _, misfit in misfits) or (path,)
    return _Verdict("conflict" if fits or there else "not applicable", where, "\n".join(told))


def _hunks(numbers: list[int]) -> str:
    *front, last = map(str, numbers)
    return f"hunks {', '.join(front)} and {last}" if front else f"hunk {last}"


def _count(hunks: Sequence[Hunk]) -> str:
    return f"{len(hunks)} hunk{'s'[: len(hunks) != 1]}"


def _content(line: str) -> str:
    return line.rstrip("\r\n")
