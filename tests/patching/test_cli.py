"""``mcore-compat patch``: what it prints, its exit codes, and what it does not load."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mcore_compat.cli._app import app
from mcore_compat.patching.catalogue import folder, series
from tests.cli.test_doctor import LOADED
from tests.patching.trees import ALPHA, PATCH, PATCHED, PATH, alpha, snapshot, tree_with


def call(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["patch", *map(str, arguments)])


def test_list_and_show() -> None:
    listed = json.loads(call("list", "--json").stdout)
    assert [row["id"] for row in listed["patches"]] == list(series())
    assert [line.split()[0] for line in call("list").stdout.splitlines()[1:]] == list(series())
    first = series()[0]
    assert call("show", first).stdout == (folder() / f"{first}.yaml").read_text(encoding="utf-8")
    assert call("show", "nothing").exit_code == 2


def test_life_of_a_patch(tmp_path: Path) -> None:
    tree = tree_with(tmp_path)
    before = snapshot(tree)
    assert "add-four  applied  megatron/core/alpha.py:19 and 1 more" in call("check", PATCH, "--root", tree).stdout
    shown = CliRunner().invoke(app, ["patch", "diff", str(PATCH), "--root", str(tree)]).stdout
    assert call("apply", PATCH, "--root", tree, "--dry-run").exit_code == 0
    assert snapshot(tree) == before
    applied = json.loads(call("apply", PATCH, "--root", tree, "--json").stdout)
    assert applied["schema_version"] == 1
    assert applied["written"]
    assert applied["patches"]["add-four"] == {
        "state": "applied",
        "where": [f"{PATH}:19", f"{PATH}:20"],
        "reason": f"2 edits in {PATH}",
    }
    assert json.loads(call("status", "--root", tree, "--json").stdout)["patches"]["add-four"]["state"] == "applied"
    assert call("revert", "--root", tree, "--only", "add-four").exit_code == 0
    assert snapshot(tree) == before
    subprocess.run(["git", "apply", "-"], cwd=tree, input=shown, text=True, check=True)
    assert alpha(tree) == PATCHED


def test_refusal_is_told_in_full(tmp_path: Path) -> None:
    tree = tree_with(tmp_path, ALPHA.replace("def scale(self", "def scale_by(self"))
    for command, code in (("check", 1), ("apply", 3), ("diff", 3)):
        done = call(command, PATCH, "--root", tree)
        assert done.exit_code == code
        assert "nearest is line 16: Scaler.scale_by" in done.output


@pytest.mark.parametrize(
    "arguments",
    [["apply", PATCH], ["check", PATCH], ["check", PATCH, "--root", "x", "--all-releases"], ["revert"], ["frobnicate"]],
)
def test_usage(arguments: list[object]) -> None:
    assert call(*arguments).exit_code == 2


def test_ids_and_files_may_be_named(tmp_path: Path) -> None:
    tree = tree_with(tmp_path)
    found = json.loads(call("check", series()[0], "--only", series()[1], "--root", tree, "--json").stdout)
    assert [*found["patches"]] == list(series()[:2])
    assert call("check", PATCH, "--only", "other", "--root", tree).exit_code == 2


def test_new_starts_a_patch_that_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = tree_with(tmp_path / "tree")
    before = snapshot(tree)
    monkeypatch.chdir(tmp_path)
    rule = ["--path", PATH, "--pattern", "log($NAME, $X)", "--fix", 'log($NAME, "by", $X)']
    done = call("new", "log-more", "--root", tree, *rule)
    assert (done.exit_code, "log-more  applied  megatron/core/alpha.py:18" in done.stdout) == (0, True), done.output
    assert call("new", "log-more", "--root", tree).exit_code == 2
    assert call("new", "as-it-comes", "--root", tree).exit_code == 0
    assert call("new", "Not An Id", "--root", tree).exit_code == 2
    assert snapshot(tree) == before
    assert call("apply", "log-more.yaml", "--root", tree).exit_code == 0
    assert 'log("scale", "by", x)' in alpha(tree)


def test_help_loads_nothing_and_work_loads_no_torch(tmp_path: Path) -> None:
    watch = LOADED.replace('"torch", "megatron", "transformers"', '"torch", "megatron", "yaml", "ast_grep_py"')
    assert "torch" in watch
    tree = tree_with(tmp_path)
    for arguments, loaded in (
        (["patch", "--help"], ""),
        (["patch", "apply", "--help"], ""),
        (["patch", "apply", str(PATCH), "--root", str(tree)], "yaml ast_grep_py"),
    ):
        done = subprocess.run([sys.executable, "-c", watch, *arguments], capture_output=True, text=True, check=True)
        assert done.stderr.strip() == loaded


def test_refusal_says_that_nothing_was_written(tmp_path: Path) -> None:
    tree = tree_with(tmp_path, ALPHA.replace("def scale(self", "def scale_by(self"))
    before = snapshot(tree)
    done = call("apply", PATCH, "--root", tree)
    assert (done.exit_code, "nothing was written" in done.stderr, snapshot(tree)) == (3, True, before)
    assert "nothing was written" not in call("check", PATCH, "--root", tree).output


@pytest.mark.parametrize("name", ["fix.patch", "fix.yaml", "folder.diff", "fix.txt", "."])
def test_what_is_no_patch_says_how_patches_are_named(tmp_path: Path, name: str) -> None:
    tree = tree_with(tmp_path / "tree")
    (tmp_path / "folder.diff").mkdir()
    done = call("apply", tmp_path / name if name != "." else name, "--root", tree)
    assert (done.exit_code, "a file's name ends in" in done.stderr) == (2, True), done.output
