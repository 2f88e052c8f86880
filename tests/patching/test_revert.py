"""Taking patches back: exactly, around edits made elsewhere since, or not at all."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from mcore_compat import patching
from mcore_compat.errors import ConfigError, MegatronNotFound, PatchError
from mcore_compat.patching.transaction import _JOURNAL  # the file that a killed process leaves
from tests.patching.trees import ALPHA, PATCH, PATCHED, PATH, alpha, snapshot, states, tree_with


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tree_with(tmp_path)
    patching.apply(root, files=[PATCH])
    return root


def test_there_and_back(tmp_path: Path) -> None:
    tree = tree_with(tmp_path)
    before = snapshot(tree)
    assert states(patching.check(tree, files=[PATCH])) == ["applied"]
    assert states(patching.apply(tree, files=[PATCH], dry_run=True)) == ["applied"]
    assert snapshot(tree) == before
    report = patching.apply(tree, files=[PATCH])
    assert (states(report), report.written, alpha(tree)) == (["applied"], True, PATCHED)
    assert report.results[0].where == (f"{PATH}:19", f"{PATH}:20")
    assert states(patching.status(tree)) == ["applied"]
    again = patching.apply(tree, files=[PATCH])
    assert (states(again), again.written) == (["already applied"], False)
    assert patching.revert(tree, dry_run=True).results[0].state == "reverted"
    assert alpha(tree) == PATCHED
    assert states(patching.revert(tree)) == ["reverted"]
    assert snapshot(tree) == before
    assert patching.revert(tree).results == ()


@pytest.mark.parametrize(
    "edit",
    [("keeps = True", "keeps = False"), ('"""A', '# new\n"""A'), ("        return x\n", "        return 2 * x\n")],
)
def test_edit_elsewhere_is_kept(tree: Path, edit: tuple[str, str]) -> None:
    (tree / PATH).write_text(PATCHED.replace(*edit), encoding="utf-8")
    [standing] = patching.status(tree).results
    assert standing.state == "applied"
    assert "edited since, but not where it is" in standing.reason
    assert states(patching.apply(tree, files=[PATCH])) == ["already applied"]
    assert states(patching.revert(tree)) == ["reverted"]
    assert alpha(tree) == ALPHA.replace(*edit)


def test_edit_of_the_patched_place_is_a_conflict(tree: Path) -> None:
    (tree / PATH).write_text(PATCHED.replace("x + 4", "x + 5"), encoding="utf-8")
    before = snapshot(tree)
    report = patching.revert(tree)
    assert (states(report), report.written) == (["conflict"], False)
    assert "line 22: expected '        return self.factor(x) * x + 4" in report.results[0].reason
    assert states(patching.status(tree)) == ["conflict"]
    assert snapshot(tree) == before


def test_patch_that_would_fit_on_its_own_result_is_not_made_twice(tree: Path) -> None:
    (tree / PATH).write_text(PATCHED.replace("seen.append(x)", "seen.append([x])"), encoding="utf-8")
    before = snapshot(tree)
    [result] = patching.apply(tree, files=[PATCH]).results
    assert result.state == "conflict"
    assert "the ledger has it, but" in result.reason
    assert snapshot(tree) == before


def test_file_is_gone(tree: Path) -> None:
    (tree / PATH).unlink()
    assert states(patching.revert(tree)) == ["conflict"]


def test_unknown_patch(tree: Path) -> None:
    with pytest.raises(PatchError, match="no patch 'other'; it has add-four"):
        patching.revert(tree, ["other"])


def test_another_process_is_at_work(tree: Path) -> None:
    holder = os.open(tree, os.O_RDONLY)
    fcntl.flock(holder, fcntl.LOCK_EX)
    with pytest.raises(PatchError, match="another process"):
        patching.revert(tree)
    os.close(holder)
    assert patching.revert(tree).written


def test_damaged_journal(tree: Path) -> None:
    (tree / _JOURNAL).write_text("{", encoding="utf-8")
    for act in (patching.status, patching.revert):
        with pytest.raises(PatchError, match="is no journal"):
            act(tree)


def test_git_does_not_see_the_ledger(tree: Path) -> None:
    assert (tree / ".mcore-compat" / ".gitignore").read_text(encoding="utf-8") == "*\n"


def test_rules_need_a_megatron(tmp_path: Path) -> None:
    with pytest.raises(MegatronNotFound):
        patching.check(tmp_path, files=[PATCH])
    with pytest.raises(MegatronNotFound):
        patching.require_fit(tmp_path, ["fp32-optimizer-state"])
    with pytest.raises(ConfigError, match="is no folder"):
        patching.check(tmp_path / "none", files=[PATCH])


def test_file_that_is_no_python(tmp_path: Path) -> None:
    [result] = patching.check(tree_with(tmp_path, ALPHA + "def (:\n"), files=[PATCH]).results
    assert (result.state, result.where) == ("not applicable", (f"{PATH}:25",))


def test_file_that_only_python_refuses(tmp_path: Path) -> None:
    [result] = patching.check(tree_with(tmp_path, ALPHA + "X = 08\n"), files=[PATCH]).results
    assert result.state == "conflict"
    assert "cannot parse the file as it is" in result.reason


def test_file_that_is_no_utf8(tmp_path: Path) -> None:
    tree = tree_with(tmp_path)
    (tree / PATH).write_bytes(ALPHA.encode() + b"# \xff\n")
    assert states(patching.check(tree, files=[PATCH])) == ["not applicable"]


def test_missing_file(tmp_path: Path) -> None:
    tree = tree_with(tmp_path)
    (tree / PATH).unlink()
    [result] = patching.check(tree, files=[PATCH]).results
    assert (result.state, result.reason) == ("not applicable", f"there is no {PATH}")
