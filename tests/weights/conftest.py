"""Model folders, made once per session."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.weights.folders import KINDS, make_folder


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A folder of every kind."""
    root = tmp_path_factory.mktemp("models")
    return {kind: make_folder(kind, root / kind) for kind in KINDS}
