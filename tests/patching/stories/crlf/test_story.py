"""The file has Windows line endings, or some of each."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcore_compat import patching
from tests.patching.trees import ALPHA, PATCH, PATCHED, alpha, snapshot, states, tree_with


def test_lines_that_are_added_end_as_the_others(tmp_path: Path) -> None:
    tree = tree_with(tmp_path, ALPHA.replace("\n", "\r\n"))
    before = snapshot(tree)
    assert states(patching.apply(tree, files=[PATCH])) == ["applied"]
    assert alpha(tree) == PATCHED.replace("\n", "\r\n")
    patching.revert(tree)
    assert snapshot(tree) == before


@pytest.mark.parametrize("other", ["log", "self.count += 1  #", "return self"])
def test_no_other_line_changes_where_they_are_mixed(tmp_path: Path, other: str) -> None:
    lines = [line + ("\r\n" if line.strip().startswith(other) else "\n") for line in ALPHA.split("\n")[:-1]]
    tree = tree_with(tmp_path, "".join(lines))
    before = snapshot(tree)
    assert states(patching.apply(tree, files=[PATCH])) == ["applied"]
    kept = [
        line for line in alpha(tree).splitlines(keepends=True) if "seen.append" not in line and "if self" not in line
    ]
    assert [line.replace(" + 4", "") for line in kept] == lines
    patching.revert(tree)
    assert snapshot(tree) == before
