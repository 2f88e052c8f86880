"""The file is read-only, or executable: it is patched all the same, and keeps its mode."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcore_compat import patching
from tests.patching.trees import PATCH, PATCHED, PATH, alpha, snapshot, tree_with


@pytest.mark.parametrize("mode", [0o444, 0o755, 0o600])
def test_mode_is_kept(tmp_path: Path, mode: int) -> None:
    tree = tree_with(tmp_path)
    (tree / PATH).chmod(mode)
    before = snapshot(tree)
    patching.apply(tree, files=[PATCH])
    assert alpha(tree) == PATCHED
    assert snapshot(tree)[PATH][1] == mode
    patching.revert(tree)
    assert snapshot(tree) == before
