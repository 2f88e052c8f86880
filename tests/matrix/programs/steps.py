"""The steps of ``matrix diff`` in a rank."""

from __future__ import annotations

from pathlib import Path

from mcore_compat.cli import _trace


def trace(folder: str, config: str) -> None:
    """One step, written to a folder."""
    Path(folder).mkdir()
    _trace.main(Path(folder), 1, Path(config))
