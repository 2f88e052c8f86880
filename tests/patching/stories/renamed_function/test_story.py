"""A fork calls the function by another name."""

from __future__ import annotations

from pathlib import Path

from mcore_compat import patching
from tests.patching.trees import ALPHA, PATCH, PATH, snapshot, tree_with


def test_refusal_names_rule_place_and_nearest_candidate(tmp_path: Path) -> None:
    tree = tree_with(tmp_path, ALPHA.replace("def scale(self", "def scale_by(self"))
    before = snapshot(tree)
    report = patching.apply(tree, files=[PATCH])
    [result] = report.results
    assert (result.state, report.written) == ("not applicable", False)
    assert result.where == (f"{PATH}:16",)
    assert "log($$$ARGS)' in Scaler.scale" in result.reason
    assert "nearest is line 16: Scaler.scale_by" in result.reason
    assert snapshot(tree) == before


def test_refusal_where_the_code_moved_to_another_function(tmp_path: Path) -> None:
    tree = tree_with(tmp_path, ALPHA.replace('log("scale", x)', 'log_all("scale", x)'))
    [result] = patching.check(tree, files=[PATCH]).results
    assert result.state == "not applicable"
    assert result.reason.endswith('nearest is line 18: log_all("scale", x)')
