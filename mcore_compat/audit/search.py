"""Finds the uses that a target release does not take."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from mcore_compat.audit.eras import newest_of
from mcore_compat.audit.reader import read
from mcore_compat.audit.table import Row, rows_about
from mcore_compat.audit.uses import Seen
from mcore_compat.errors import ConfigError
from mcore_compat.matrix.table import releases

# (dotted name, release) -> whether that release has it; None: that cannot be told here
Lookup = Callable[[str, str], "bool | None"]
# Besides hidden folders: those of version control, environments and notebooks' checkpoints.
_SKIPPED = {"build", "node_modules", "__pycache__"}


@dataclass(frozen=True)
class Finding:
    """One use that breaks.

    Attributes:
        path: File, as it was reached from the path that was given.
        line: 1-based.
        column: 1-based.
        use: What the program does there.
        breaks: Those of the target releases that do not take it.
        change: What changed, and in which release.
        instead: What to write.
    """

    path: str
    line: int
    column: int
    use: str
    breaks: tuple[str, ...]
    change: str
    instead: str


@dataclass(frozen=True)
class Audit:
    """What the audit found.

    Attributes:
        targets: The releases that were asked about.
        files: Number of files that were looked at.
        findings: In the order of files and lines.
        unread: Files that are no Python for this interpreter, and why.
    """

    targets: tuple[str, ...]
    files: int
    findings: tuple[Finding, ...]
    unread: tuple[tuple[str, str], ...]


def audit(path: Path, targets: Sequence[str] = (), lookup: Lookup | None = None) -> Audit:
    """Read every Python file under ``path`` and list what breaks on the targets.

    Args:
        path: A file or a folder.
        targets: Releases, or minor releases, of the table; none: the newest one.
        lookup: Also report names that it does not find (see :func:`mcore_compat.audit.sources.lookup`).

    Raises:
        ConfigError: There is no such path or no Python file, or the table has no such release.
    """
    asked = asked_about(targets)
    findings: list[Finding] = []
    unread: list[tuple[str, str]] = []
    files = python_files(path)
    for file in files:
        try:
            findings += _examine(file, asked, lookup)
        except (SyntaxError, ValueError, OSError) as error:
            unread.append((str(file), str(error)))
    return Audit(asked, len(files), tuple(findings), tuple(unread))


def asked_about(targets: Sequence[str]) -> tuple[str, ...]:
    """The releases that are meant; nobody named any: the newest one.

    Raises:
        ConfigError: The table has no such release.
    """
    return tuple(map(newest_of, targets)) or (releases()[-1].version,)


def python_files(path: Path) -> list[Path]:
    """The file itself, or the Python files of the folder, in order.

    Raises:
        ConfigError: There is none.
    """
    hint = "give the folder of your framework's package"
    if not path.exists():
        raise ConfigError(f"no file or folder {path}", hint=hint)
    found = [path] if path.is_file() else path.rglob("*.py")
    files = sorted(file for file in found if file.is_file() and not _is_skipped(file.parts[len(path.parts) :]))
    if not files:
        raise ConfigError(f"no Python file under {path}", hint=hint)
    return files


def _is_skipped(parts: Sequence[str]) -> bool:
    return any(part in _SKIPPED or part.startswith(".") for part in parts[:-1])


def _examine(file: Path, targets: tuple[str, ...], lookup: Lookup | None) -> Iterator[Finding]:
    told = set()
    for seen in read(file):
        finding = _by_table(file, seen, targets) or (lookup and _by_source(file, seen, targets, lookup))
        if finding and (finding.line, finding.use) not in told:
            told.add((finding.line, finding.use))
            yield finding


def _by_table(file: Path, seen: Seen, targets: tuple[str, ...]) -> Finding | None:
    for row in rows_about(seen.kind):
        use = row.use.of(seen)
        breaks = tuple(version for version in targets if not row.works_on(version)) if use else ()
        if use and breaks:
            return Finding(str(file), seen.line, seen.column, use, breaks, _change(row, breaks), row.instead)
    return None


def _change(row: Row, breaks: tuple[str, ...]) -> str:
    where = dict.fromkeys(row.boundary(version) for version in breaks)
    return f"{', '.join(where)}: {row.change}"


def _by_source(file: Path, seen: Seen, targets: tuple[str, ...], lookup: Lookup) -> Finding | None:
    if seen.kind != "name":
        return None
    breaks = tuple(version for version in targets if lookup(seen.name, version) is False)
    if not breaks:
        return None
    change = f"the source of {', '.join(breaks)} has no such name"
    instead = "look for its new home in that release, or do without it"
    return Finding(str(file), seen.line, seen.column, seen.name, breaks, change, instead)
