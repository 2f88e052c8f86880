"""One result of the matrix, and the cache that a run resumes from."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from mcore_compat.cache import default_cache

Status = Literal["passed", "failed", "skipped"]
# Name of a curve to its values, one per step.
Series = Mapping[str, list[float]]


@dataclass(frozen=True)
class Cell:
    """What one suite gave on one release.

    Attributes:
        status: ``skipped`` where it could not run; then ``reason`` says why.
        passed: Tests that passed.
        failed: Tests that failed.
        skipped: Tests that were skipped.
        reason: Why it failed or was skipped, or the reasons of single skipped tests.
        seconds: How long it took when it ran.
        note: What to know about the run: a Python outside the declared range.
        series: Run to its curves.
    """

    status: Status
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    reason: str = ""
    seconds: float = 0.0
    note: str = ""
    series: Mapping[str, Series] = field(default_factory=dict)

    def summary(self) -> dict[str, Any]:
        """As shown to programs: without the series."""
        return {name: value for name, value in asdict(self).items() if name != "series"}


class Results:
    """Cells on disk, one file per suite and release.

    Args:
        folder: Where; default ``matrix`` in the cache folder.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or default_cache() / "matrix"

    def load(self, suite: str, name: str, key: str = "") -> Cell | None:
        """The stored cell; with ``key`` only if it was stored under that key. A damaged file counts as none."""
        try:
            stored = json.loads(self._path(suite, name).read_text(encoding="utf-8"))
            return Cell(**stored["cell"]) if key in ("", stored["key"]) else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def store(self, suite: str, name: str, key: str, cell: Cell) -> None:
        """Keep a cell; a reader sees the old file or the new one."""
        path = self._path(suite, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, delete=False) as file:
            json.dump({"key": key, "cell": asdict(cell)}, file)
        os.replace(file.name, path)

    def _path(self, suite: str, name: str) -> Path:
        return self.folder / suite / f"{name}.json"
