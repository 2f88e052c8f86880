"""What an upgrade breaks, from the table: a section for a README, or the answer to "can I go from X to Y"."""

from __future__ import annotations

from collections.abc import Iterator

from mcore_compat.audit.table import Row, rows
from mcore_compat.matrix.table import release


def upgrading(start: str, end: str) -> str:
    """A Markdown table of every use that works on release ``start`` and not on ``end``, and what to write instead.

    Raises:
        ConfigError: The table of releases has no such release.
    """
    known = [release(version).version for version in (start, end)]
    lines = [f"| works on {known[0]} | {known[1]} | instead |", "|---|---|---|", *_lines(*known)]
    return "\n".join(lines)


def broken_between(start: str, end: str) -> list[Row]:
    """The rows of the table that work on ``start`` and not on ``end``."""
    return [row for row in rows() if row.works_on(start) and not row.works_on(end)]


def _lines(start: str, end: str) -> Iterator[str]:
    for row in broken_between(start, end):
        yield f"| `{row.use}` | {row.boundary(end)}: {row.change} | {row.instead} |"
