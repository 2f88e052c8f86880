"""The ledger is damaged, of another version, forged, or of another tree."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mcore_compat import patching
from mcore_compat.errors import PatchError
from mcore_compat.patching.ledger import NAME
from tests.patching.trees import ALPHA, PATCH, PATCHED, PATH, alpha, snapshot, states, tree_with


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tree_with(tmp_path)
    patching.apply(root, files=[PATCH])
    return root


def rewrite(tree: Path, change: Callable[[dict[str, Any]], object]) -> None:
    data = json.loads((tree / NAME).read_text(encoding="utf-8"))
    change(data)
    (tree / NAME).write_text(json.dumps(data), encoding="utf-8")


def refused(tree: Path, message: str) -> None:
    before = snapshot(tree)
    for act in (patching.status, patching.revert, lambda root: patching.apply(root, files=[PATCH])):
        with pytest.raises(PatchError, match=message):
            act(tree)
    assert snapshot(tree) == before


@pytest.mark.parametrize("content", ["", "{", "[]", '{"schema_version": 1}', '{"schema_version": 1, "patches": [{}]}'])
def test_damaged(tree: Path, content: str) -> None:
    (tree / NAME).write_text(content, encoding="utf-8")
    refused(tree, "is no ledger")


def test_other_schema_version(tree: Path) -> None:
    rewrite(tree, lambda data: data.update(schema_version=2))
    refused(tree, "schema version 2, expected 1")


def test_forged_path(tree: Path) -> None:
    rewrite(tree, lambda data: data["patches"][0]["files"][0].update(path="../../victim"))
    refused(tree, r"ledger\.json is no ledger: '\.\./\.\./victim' .* must be relative")


@pytest.mark.parametrize(
    "damage",
    [{"path": 3}, {"before": 3}, {"reverse": None}, {"reverse": "junk"}, {"mode": "0644"}, {"more": 1}],
    ids=str,
)
def test_damaged_record(tree: Path, damage: dict[str, Any]) -> None:
    rewrite(tree, lambda data: data["patches"][0]["files"][0].update(damage))
    refused(tree, "is no ledger")


def test_of_another_tree(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = tree_with(tmp_path_factory.mktemp("other"), ALPHA.replace("self.count += 1", "self.count += 2"))
    shutil.copytree(tree / ".mcore-compat", other / ".mcore-compat")
    assert states(patching.status(other)) == ["conflict"]
    report = patching.revert(other)
    assert (states(report), report.written) == (["conflict"], False)
    assert f"{PATH} was edited since" in report.results[0].reason


def test_file_was_put_back_by_other_means(tree: Path) -> None:
    (tree / PATH).write_text(ALPHA, encoding="utf-8")
    assert states(patching.status(tree)) == ["reverted"]
    assert states(patching.apply(tree, files=[PATCH])) == ["applied"]
    assert alpha(tree) == PATCHED
    (tree / PATH).write_text(ALPHA, encoding="utf-8")
    patching.revert(tree)
    assert not (tree / NAME).exists()


def test_deleting_it_forgets_and_the_file_still_tells(tree: Path) -> None:
    shutil.rmtree(tree / ".mcore-compat")
    assert patching.status(tree).results == ()
    assert states(patching.check(tree, files=[PATCH])) == ["already applied"]


def test_another_version_of_the_patch(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    newer = tmp_path_factory.mktemp("newer") / PATCH.name
    newer.write_text(PATCH.read_text(encoding="utf-8") + "# changed\n", encoding="utf-8")
    [result] = patching.apply(tree, files=[newer]).results
    assert result.state == "conflict"
    assert "another version" in result.reason
    patching.revert(tree)
    assert states(patching.apply(tree, files=[newer])) == ["applied"]
