"""A link in the tree, or a path in a patch, leads out of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcore_compat import patching
from mcore_compat.errors import PatchError
from tests.patching.trees import ALPHA, PATCH, PATCHED, PATH, snapshot, tree_with

NEW_FILE = "--- /dev/null\n+++ b/{path}\n@@ -0,0 +1,1 @@\n+x = 1\n"


def test_file_that_is_a_link_out(tmp_path: Path) -> None:
    tree = tree_with(tmp_path / "tree")
    outside = tmp_path / "alpha.py"
    (tree / PATH).rename(outside)
    (tree / PATH).symlink_to(outside)
    with pytest.raises(PatchError, match="leads out of it"):
        patching.apply(tree, files=[PATCH])
    assert outside.read_text(encoding="utf-8") == ALPHA


def test_folder_that_is_a_link_out(tmp_path: Path) -> None:
    tree = tree_with(tmp_path / "tree")
    (tmp_path / "elsewhere").mkdir()
    (tree / "more").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "new.patch").write_text(NEW_FILE.format(path="more/new.py"), encoding="utf-8")
    with pytest.raises(PatchError, match="leads out of it"):
        patching.apply(tree, files=[tmp_path / "new.patch"])
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_link_inside_is_followed_and_stays_a_link(tmp_path: Path) -> None:
    tree = tree_with(tmp_path)
    real = tree / "megatron" / "core" / "real.py"
    (tree / PATH).rename(real)
    (tree / PATH).symlink_to("real.py")
    before = snapshot(tree)
    patching.apply(tree, files=[PATCH])
    assert real.read_text(encoding="utf-8") == PATCHED
    assert (tree / PATH).is_symlink()
    patching.revert(tree)
    assert snapshot(tree) == before


@pytest.mark.parametrize(
    "path",
    ["../out.py", "/tmp/out.py", "megatron/../../out.py", ".git/hooks/x", ".mcore-compat/ledger.json", "a\\..\\b"],
)
def test_paths_that_lead_out(tmp_path: Path, path: str) -> None:
    tree = tree_with(tmp_path / "tree")
    before = snapshot(tmp_path)
    patch = tmp_path / "new.patch"
    patch.write_text(NEW_FILE.format(path=path), encoding="utf-8")
    with pytest.raises(PatchError, match="correct the path"):
        patching.apply(tree, files=[patch])
    patch.unlink()
    assert snapshot(tmp_path) == before
