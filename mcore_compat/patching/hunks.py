"""Unified diffs of single files: made, read, and fitted line by line."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

from unidiff import patch as unidiff
from unidiff.errors import UnidiffParseError

from mcore_compat.errors import PatchError

CONTEXT = 3
_NO_NEWLINE = "\\ No newline at end of file\n"
Key = Callable[[str], str]


@dataclass(frozen=True)
class Hunk:
    """Lines, with their endings, and what they become.

    Attributes:
        start: Index in the old file where ``old`` begins, from 0.
        old: Context and removed lines.
        start_new: Index in the new file where ``new`` begins, from 0.
        new: Context and added lines.
        context: Index in ``old`` and in ``new`` of each line of context.
    """

    start: int
    old: tuple[str, ...]
    start_new: int
    new: tuple[str, ...]
    context: tuple[tuple[int, int], ...]

    @property
    def reversed(self) -> Hunk:
        """The hunk that takes this one back."""
        context = tuple((new, old) for old, new in self.context)
        return Hunk(self.start_new, self.new, self.start, self.old, context)


@dataclass(frozen=True)
class Spot:
    """Where a hunk fits: the index of its first line."""

    index: int


@dataclass(frozen=True)
class Misfit:
    """Where a hunk comes closest, and the first line there that differs.

    Attributes:
        line: Its number in the file, from 1.
        expected: What the hunk holds there.
        found: What the file holds there.
    """

    line: int
    expected: str
    found: str


def lines_of(data: bytes) -> list[str]:
    """The lines of a file with their endings; any bytes survive the way back through :func:`bytes_of`."""
    return _lines(data.decode("utf-8", "surrogateescape"))


def bytes_of(text: Iterable[str]) -> bytes:
    """The file that these lines are."""
    return "".join(text).encode("utf-8", "surrogateescape")


def unified(before: bytes | None, after: bytes | None, path: str) -> str:
    """The unified diff from ``before`` to ``after``; ``None`` is a file that is not there."""
    old, new = lines_of(before or b""), lines_of(after or b"")
    names = [f"{side}/{path}" if data is not None else "/dev/null" for side, data in (("a", before), ("b", after))]
    skipped = max(0, len(_common(old, new)) - CONTEXT)
    tail = max(0, len(_common(old[skipped:][::-1], new[skipped:][::-1])) - CONTEXT)
    groups = difflib.SequenceMatcher(None, old[skipped : len(old) - tail], new[skipped : len(new) - tail], False)
    body = "".join(_hunk_text(group, old, new, skipped) for group in groups.get_grouped_opcodes(CONTEXT))
    return f"--- {names[0]}\n+++ {names[1]}\n{body}"


def parse(text: str, name: str) -> unidiff.PatchSet:
    """Read a unified diff.

    Raises:
        PatchError: It is none.
    """
    try:
        files = unidiff.PatchSet(_lines(text))
    except UnidiffParseError as error:
        raise PatchError(
            f"{name} is no unified diff: {error}", hint="make it anew, with diff -u or git diff"
        ) from error
    if not files:
        raise PatchError(f"{name} holds no unified diff", hint="make it anew, with diff -u or git diff")
    return files


def hunks_of(file: unidiff.PatchedFile) -> list[Hunk]:
    """The hunks of one file of a diff."""
    return [_hunk(hunk) for hunk in file]


def fit(lines: Sequence[str], hunks: Sequence[Hunk], key: Key) -> list[Spot | Misfit]:
    """Where each hunk fits: at its line, moved as far as the hunk before it, or else at the only other place.

    Args:
        lines: The file.
        hunks: In order.
        key: What of a line must be equal.
    """
    keys = [key(line) for line in lines]
    found: list[Spot | Misfit] = []
    moved, floor = 0, 0
    for hunk in hunks:
        spot = _place(keys, [key(line) for line in hunk.old], hunk.start + moved, floor)
        found.append(spot)
        if isinstance(spot, Spot):
            moved, floor = spot.index - hunk.start, spot.index + len(hunk.old)
    return found


def put(lines: Sequence[str], hunks: Sequence[Hunk], spots: Sequence[Spot], newline: str | None) -> list[str]:
    """The file with every hunk in its place.

    Args:
        lines: The file.
        hunks: What to put.
        spots: Where.
        newline: Ending of added lines; ``None``: as the hunk has it.
    """
    result: list[str] = []
    done = 0
    for hunk, spot in zip(hunks, spots, strict=True):
        stop = spot.index + len(hunk.old)
        result += [*lines[done : spot.index], *_replaced(lines[spot.index : stop], hunk, newline)]
        done = stop
    result += lines[done:]
    return [line if line.endswith("\n") else line + (newline or "\n") for line in result[:-1]] + result[-1:]


def _lines(text: str) -> list[str]:
    # Only this character ends a line of a diff; splitlines() knows ten more.
    return [line + "\n" for line in text.split("\n")[:-1]] + [rest for rest in [text.rpartition("\n")[2]] if rest]


def _common(old: list[str], new: list[str]) -> list[str]:
    return [a for a, _ in takewhile(lambda pair: pair[0] == pair[1], zip(old, new, strict=False))]


def _hunk_text(group: list[tuple[str, int, int, int, int]], old: list[str], new: list[str], skipped: int) -> str:
    start_old, start_new = group[0][1] + skipped, group[0][3] + skipped
    size_old, size_new = group[-1][2] + skipped - start_old, group[-1][4] + skipped - start_new
    body = "".join(
        _marked(sign, line)
        for tag, *ends in group
        for sign, line in _tagged(tag, [e + skipped for e in ends], old, new)
    )
    # By convention a side without lines names the line before it.
    first_old, first_new = start_old + bool(size_old), start_new + bool(size_new)
    return f"@@ -{first_old},{size_old} +{first_new},{size_new} @@\n{body}"


def _tagged(tag: str, ends: list[int], old: list[str], new: list[str]) -> Iterator[tuple[str, str]]:
    if tag == "equal":
        yield from ((" ", line) for line in old[ends[0] : ends[1]])
    else:
        yield from (("-", line) for line in old[ends[0] : ends[1]])
        yield from (("+", line) for line in new[ends[2] : ends[3]])


def _marked(sign: str, line: str) -> str:
    return sign + line if line.endswith("\n") else f"{sign}{line}\n{_NO_NEWLINE}"


def _hunk(hunk: unidiff.Hunk) -> Hunk:
    old: list[str] = []
    new: list[str] = []
    context: list[tuple[int, int]] = []
    ended: list[list[str]] = []
    for line in hunk:
        if line.line_type == "\\":
            for side in ended:
                side[-1] = side[-1].removesuffix("\n")
            continue
        # An empty line after the hunk is the diff's, not the file's.
        if len(old) == hunk.source_length and len(new) == hunk.target_length:
            break
        context += [(len(old), len(new))] if line.is_context else []
        ended = [side for side, absent in ((old, line.is_added), (new, line.is_removed)) if not absent]
        for side in ended:
            side.append(line.value)
    starts = hunk.source_start - bool(old), hunk.target_start - bool(new)
    return Hunk(starts[0], tuple(old), starts[1], tuple(new), tuple(context))


def _place(keys: list[str], old: list[str], wanted: int, floor: int) -> Spot | Misfit:
    size = len(old)
    if keys[wanted : wanted + size] == old and floor <= wanted and (size or not keys):
        return Spot(wanted)
    spots = [at for at in range(floor, len(keys) - size + 1) if size and keys[at : at + size] == old]
    return Spot(spots[0]) if len(spots) == 1 else _misfit(keys, old, wanted, floor, spots)


def _misfit(keys: list[str], old: list[str], wanted: int, floor: int, spots: list[int]) -> Misfit:
    if spots:
        numbers = ", ".join(str(at + 1) for at in spots)
        return Misfit(wanted + 1, old[0], f"the same lines {len(spots)} times, at {numbers}")
    if not old:
        return Misfit(wanted + 1, "a line of context", "none in the hunk: it could go anywhere")

    def closeness(at: int) -> tuple[int, int]:
        equal = sum(a == b for a, b in zip(keys[at : at + len(old)], old, strict=False))
        return equal, -abs(at - wanted)

    best = max(range(floor, max(floor, len(keys) - 1) + 1), key=closeness, default=floor)
    differing = next(n for n, line in enumerate(old) if keys[best + n : best + n + 1] != [line])
    at = best + differing
    return Misfit(at + 1, old[differing], keys[at] if at < len(keys) else "end of file")


def _replaced(held: Sequence[str], hunk: Hunk, newline: str | None) -> list[str]:
    """The hunk's new lines; those that it only passes through keep what the file holds."""
    if newline is None:
        return list(hunk.new)
    kept = {new: held[old] for old, new in hunk.context}
    return [kept[n] if n in kept else _ended(line, newline) for n, line in enumerate(hunk.new)]


def _ended(line: str, newline: str) -> str:
    return line.rstrip("\r\n") + newline if line.endswith("\n") else line
