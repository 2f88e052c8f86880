"""What the matrix found, gathered: for the page, for the README, and as the file that the repository keeps."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from mcore_compat.errors import ConfigError
from mcore_compat.matrix.cells import Cell, Results
from mcore_compat.matrix.curves import agreement
from mcore_compat.matrix.suites import SUITES, fingerprint
from mcore_compat.matrix.table import releases

SCHEMA_VERSION = 1
MARKS = {"passed": "✓", "failed": "✗", "skipped": "–"}
HEADINGS = {"probe": "call shapes", "import": "imports", "contract": "contract", "ppo": "same curves"}
_NOT_RUN = Cell("skipped", reason="not run")


@dataclass(frozen=True)
class Overview:
    """Cells of every suite and release.

    Attributes:
        cells: Suite to release to cell, all releases of the table in its order.
        torch: torch that they ran with.
        python: Python that they ran with.
        outdated: (suite, release) whose result is older than the package, the tests or the row.
    """

    cells: Mapping[str, Mapping[str, Cell]]
    torch: str
    python: str
    outdated: frozenset[tuple[str, str]] = field(default_factory=frozenset)


def gather(root: Path, results: Results) -> Overview:
    """The stored results of all suites; what has not run says so."""
    cells: dict[str, Mapping[str, Cell]] = {}
    outdated = set()
    for suite in SUITES.values():
        found = {row.version: results.load(suite.name, row.version) or _NOT_RUN for row in releases()}
        cells[suite.name] = agreement(found, releases()[-1].version) if suite.draws_curves else found
        for row in releases():
            if found[row.version] != _NOT_RUN and not results.load(
                suite.name, row.version, fingerprint(row, suite, root)
            ):
                outdated.add((suite.name, row.version))
    return Overview(cells, version("torch"), platform.python_version(), frozenset(outdated))


def as_kept(overview: Overview) -> dict[str, Any]:
    """What the repository keeps of an overview: no times and no curves, so that equal results give equal files."""
    rows = {
        row.version: {
            suite: {"status": cell.status, "passed": cell.passed, "failed": cell.failed, "skipped": cell.skipped}
            for suite, cells in overview.cells.items()
            for cell in [cells[row.version]]
        }
        for row in releases()
    }
    return {"schema_version": SCHEMA_VERSION, "torch": overview.torch, "python": overview.python, "releases": rows}


def read_kept(path: Path) -> dict[str, Any]:
    """The file that :func:`as_kept` fills.

    Raises:
        ConfigError: There is none, or it is of another version.
    """
    try:
        kept: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read {path}: {error}", hint="mcore-compat matrix report --readme") from error
    if kept.get("schema_version") != SCHEMA_VERSION:
        raise ConfigError(f"{path} is of another version", hint="mcore-compat matrix report --readme")
    return kept


def as_markdown(kept: Mapping[str, Any]) -> str:
    """The README's table: one row per release, one column per suite."""
    columns = ["Megatron-Core", *HEADINGS.values(), "note"]
    lines = [columns, ["---"] * len(columns)]
    for row in releases():
        cells = kept["releases"].get(row.version, {})
        lines.append([row.version, *(_mark(cells.get(suite)) for suite in HEADINGS), row.note])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def between(text: str, marker: str, table: str) -> str:
    """A Markdown text with what stands between ``<!-- marker -->`` and ``<!-- /marker -->`` replaced.

    Raises:
        ConfigError: The text has no such markers.
    """
    start, end = f"<!-- {marker} -->\n", f"<!-- /{marker} -->"
    if start not in text or end not in text:
        raise ConfigError(f"no place for the table: {start.strip()} and {end} are not there", hint="put them back")
    before, _, rest = text.partition(start)
    return f"{before}{start}{table}\n{end}{rest.partition(end)[2]}"


def _mark(cell: Mapping[str, Any] | None) -> str:
    if cell is None:
        return MARKS["skipped"]
    count = f" {cell['passed']}" if cell["passed"] > 1 else ""
    return MARKS[cell["status"]] + (count if cell["status"] == "passed" else "")
