"""Two patches change one function, on neighbouring lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcore_compat import patching
from tests.patching.trees import ALPHA, PATCH, PATCHED, alpha, snapshot, states, tree_with

HERE = Path(__file__).parent
SECOND = HERE / "count-five.yaml"
MARK = "self.count += 1  # calls"
BOTH = PATCHED.replace(MARK, MARK.replace("1", "5"))


def test_second_sees_what_the_first_left(tmp_path: Path) -> None:
    tree = tree_with(tmp_path)
    assert states(patching.apply(tree, files=[PATCH, SECOND])) == ["applied", "applied"]
    assert alpha(tree) == BOTH
    assert states(patching.status(tree)) == ["applied", "applied"]
    assert states(patching.apply(tree, files=[PATCH, SECOND])) == ["already applied", "already applied"]


def test_first_does_not_fit_on_the_second(tmp_path: Path) -> None:
    tree = tree_with(tmp_path)
    report = patching.apply(tree, files=[SECOND, PATCH])
    assert (states(report), report.written) == (["applied", "conflict"], False)
    assert alpha(tree) == ALPHA


@pytest.mark.parametrize("order", [("add-four", "count-five"), ("count-five", "add-four")])
def test_taken_back_one_by_one(tmp_path: Path, order: tuple[str, str]) -> None:
    tree = tree_with(tmp_path)
    before = snapshot(tree)
    patching.apply(tree, files=[PATCH])
    patching.apply(tree, files=[SECOND])
    report = patching.revert(tree, [order[0]])
    if order[0] == "add-four":
        assert (states(report), report.written, alpha(tree)) == (["reverted", "conflict"], False, BOTH)
        assert "lies on the same lines, revert it too" in report.results[1].reason
        report = patching.revert(tree)
    else:
        assert alpha(tree) == PATCHED
        report = patching.revert(tree, [order[1]])
    assert report.written
    assert snapshot(tree) == before


def test_far_apart_they_come_off_in_any_order(tmp_path: Path) -> None:
    far = ALPHA.replace("        return self.factor", "        pass\n" * 8 + "        return self.factor")
    tree = tree_with(tmp_path, far)
    before = snapshot(tree)
    patching.apply(tree, files=[HERE / "top.patch", HERE / "end.patch"])
    assert states(patching.revert(tree, ["top"])) == ["reverted"]
    assert alpha(tree) == far[:-2] + "2 * x\n"
    assert states(patching.status(tree)) == ["applied"]
    patching.revert(tree)
    assert snapshot(tree) == before
