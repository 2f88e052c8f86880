"""Someone made half of the edits already."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcore_compat import patching
from tests.patching.trees import ALPHA, PATCH, PATCHED, snapshot, states, tree_with


def test_conflict_and_nothing_is_written(tmp_path: Path) -> None:
    half = PATCHED.replace("return self.factor(x) * x + 4", "result = self.factor(x) * x + 4")
    tree = tree_with(tmp_path, half)
    before = snapshot(tree)
    report = patching.apply(tree, files=[PATCH])
    [result] = report.results
    assert (result.state, report.written) == ("conflict", False)
    assert "'return $VALUE' in Scaler.scale 1x, found 0x" in result.reason
    assert "1 of its 2 edits fit" in result.reason
    assert snapshot(tree) == before


def test_one_edit_made_twice_is_no_result(tmp_path: Path) -> None:
    tree = tree_with(tmp_path, PATCHED.replace(" + 4", ""))
    [result] = patching.check(tree, files=[PATCH]).results
    assert result.state == "conflict"
    assert "does not hold 'self.seen.append(x)'" in result.reason


@pytest.mark.parametrize("text", [PATCHED, PATCHED.replace("# no sum", "# done by hand")])
def test_all_by_hand_is_already_applied(tmp_path: Path, text: str) -> None:
    report = patching.apply(tree_with(tmp_path, text), files=[PATCH])
    assert (states(report), report.written) == (["already applied"], False)


def test_fixed_in_another_way_is_not_needed(tmp_path: Path) -> None:
    fixed = ALPHA.replace("return self.factor(x) * x", "return scale_all(x)")
    assert states(patching.check(tree_with(tmp_path, fixed), files=[PATCH])) == ["not needed"]
