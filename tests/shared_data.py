"""Data that lies beside the checkout, where there is any."""

from __future__ import annotations

from pathlib import Path

import pytest

SHARED = Path(__file__).resolve().parents[2] / "shared"


def shared_path(name: str) -> Path:
    """The file or folder ``name`` of the data folder; skips the test where there is no such thing."""
    path = SHARED / name
    if not path.exists():
        pytest.skip(f"needs {name} in a folder 'shared' beside the checkout")
    return path
