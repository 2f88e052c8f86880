"""Unified diffs: every line must match, wherever a hunk moved to; a misfit says which, where, and what else fits."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from mcore_compat import patching
from mcore_compat.cli._app import app
from mcore_compat.errors import PatchError
from mcore_compat.patching.hunks import unified
from tests.detect.trees import checkout, write_tree
from tests.patching.trees import snapshot, states

CORE = "core/alpha.py"
TEXT = """\
def scale(x):
    return x * 2


# --- section one ---


def shift(x):
    return x + 1


# --- section two ---


def clip(x):
    return min(x, 10)
"""
DIFF = """\
--- a/core/alpha.py
+++ b/core/alpha.py
@@ -1,3 +1,3 @@
 def scale(x):
-    return x * 2
+    return x * 4
 
@@ -8,3 +8,3 @@
 def shift(x):
-    return x + 1
+    return x + 5
 
@@ -15,2 +15,2 @@
 def clip(x):
-    return min(x, 10)
+    return min(x, 20)
"""
RESULT = TEXT.replace("x * 2", "x * 4").replace("x + 1", "x + 5").replace("10", "20")
MISFIT = DIFF.replace("-    return x + 1", "-    return x + 3")


def made(root: Path, text: str = TEXT, diff: str = DIFF) -> tuple[Path, Path]:
    """A tree without a Megatron, and a patch beside it."""
    tree = write_tree(root / "tree", {CORE: text})
    (tree / CORE).write_bytes(text.encode())
    patch = root / "fork.patch"
    patch.write_bytes(diff.encode())
    return tree, patch


def outcome(root: Path, text: str = TEXT, diff: str = DIFF) -> tuple[str, str]:
    """State and content after ``apply``; taking it back is checked on the way."""
    tree, patch = made(root, text, diff)
    before = snapshot(tree)
    report = patching.apply(tree, files=[patch])
    content = (tree / CORE).read_bytes().decode()
    if report.written:
        patching.revert(tree)
    assert snapshot(tree) == before
    return report.results[0].state, content


@pytest.mark.parametrize(("command", "code"), [("apply", 3), ("check", 1)])
def test_c16_misfit(tmp_path: Path, command: str, code: int) -> None:
    tree, patch = made(tmp_path, diff=MISFIT)
    before = snapshot(tree)
    done = CliRunner().invoke(app, ["patch", command, str(patch), "--root", str(tree)])
    assert done.exit_code == code
    assert (
        "core/alpha.py: hunk 2 does not fit at line 9: expected '    return x + 3', found '    return x + 1'"
        in done.stdout
    )
    assert "hunks 1 and 3 would fit" in done.stdout
    assert snapshot(tree) == before


def test_c16_fit(tmp_path: Path) -> None:
    tree, patch = made(tmp_path)
    done = CliRunner().invoke(app, ["patch", "apply", str(patch), "--root", str(tree)])
    assert (done.exit_code, (tree / CORE).read_text(encoding="utf-8")) == (0, RESULT)
    assert done.stdout.startswith("Megatron  none found")


def test_c16_fit_names_the_release(tmp_path: Path) -> None:
    tree, patch = made(tmp_path)
    done = CliRunner().invoke(app, ["patch", "apply", str(patch), "--root", str(checkout(tree)), "--json"])
    found = json.loads(done.stdout)
    assert found["megatron"]["version"] == "0.3.0rc1"
    assert found["patches"]["fork"]["state"] == "applied"


@pytest.mark.parametrize("above", ["import os\n", "# a\n" * 40])
def test_hunks_move(tmp_path: Path, above: str) -> None:
    assert outcome(tmp_path, above + TEXT) == ("applied", above + RESULT)


def test_each_hunk_moves_on_its_own(tmp_path: Path) -> None:
    between = TEXT.replace("# --- section two ---\n", "# --- section two ---\nX = 1\n" * 3)
    assert outcome(tmp_path, between)[0] == "applied"


def test_no_place_is_guessed(tmp_path: Path) -> None:
    twice = "import os\n" + TEXT + "\n\n" + TEXT.partition("# --- section one")[0]
    tree, patch = made(tmp_path, twice)
    [result] = patching.check(tree, files=[patch]).results
    assert result.state == "conflict"
    assert "the same lines 2 times, at 2, 20" in result.reason


def test_context_must_match(tmp_path: Path) -> None:
    assert outcome(tmp_path, TEXT.replace("def clip(x)", "def clip(x, y)"))[0] == "conflict"


def test_nothing_fits(tmp_path: Path) -> None:
    assert outcome(tmp_path, "x = 1\n")[0] == "not applicable"


def test_without_context_it_could_go_anywhere(tmp_path: Path) -> None:
    bare = "--- a/core/alpha.py\n+++ b/core/alpha.py\n@@ -2,0 +3,1 @@\n+    # new\n"
    tree, patch = made(tmp_path, diff=bare)
    assert "it could go anywhere" in patching.check(tree, files=[patch]).results[0].reason


@pytest.mark.parametrize("diff", [DIFF, DIFF.replace("\n", "\r\n")])
def test_line_endings_are_the_files(tmp_path: Path, diff: str) -> None:
    (tmp_path / "lf").mkdir()
    assert outcome(tmp_path / "lf", TEXT, diff) == ("applied", RESULT)
    assert outcome(tmp_path, TEXT.replace("\n", "\r\n"), diff) == ("applied", RESULT.replace("\n", "\r\n"))


def test_bytes_that_are_no_text_survive(tmp_path: Path) -> None:
    tree, patch = made(tmp_path)
    odd = TEXT.encode().replace(b"section one", b"section \xff\xfe\x0c\x1c one")
    (tree / CORE).write_bytes(odd)
    patching.apply(tree, files=[patch])
    assert b"\xff\xfe\x0c\x1c one" in (tree / CORE).read_bytes()
    patching.revert(tree)
    assert (tree / CORE).read_bytes() == odd


def test_half_applied_is_a_conflict_that_says_so(tmp_path: Path) -> None:
    tree, patch = made(tmp_path, TEXT.replace("x + 1", "x + 5"))
    [result] = patching.check(tree, files=[patch]).results
    assert result.state == "conflict"
    assert "hunk 2 there already" in result.reason


def test_applied_by_other_means(tmp_path: Path) -> None:
    assert outcome(tmp_path, RESULT)[0] == "already applied"


def test_what_git_makes(tmp_path: Path) -> None:
    """Created, deleted, renamed and executable files, and files without a last newline."""
    old = write_tree(
        tmp_path / "old", {CORE: TEXT, "gone.py": "x = 1\n", "here.py": "y = 1\ny = 2\ny = 3", "one/a.py": TEXT}
    )
    new = write_tree(tmp_path / "new", {CORE: RESULT, "here.py": "y = 1\ny = 2\ny = 4", "two/b.py": RESULT})
    write_tree(new, {"run.sh": "echo\n", "empty.py": ""})
    (new / "run.sh").chmod(0o755)
    command = ["git", "diff", "--no-index", "-M40", "old", "new"]
    text = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True).stdout
    assert "rename from" in text
    patch = tmp_path / "git.patch"
    names = [
        ("a/old/", "a/"),
        ("b/new/", "b/"),
        ("from old/", "from "),
        ("to new/", "to "),
        ("a/new/", "a/"),
        ("b/old/", "b/"),
    ]
    for before, after in names:
        text = text.replace(before, after)
    patch.write_text(text, encoding="utf-8")
    pristine = snapshot(old)
    assert states(patching.apply(old, files=[patch])) == ["applied"]
    assert {name: held for name, held in snapshot(old).items() if ".mcore-compat" not in name} == snapshot(new)
    assert states(patching.apply(old, files=[patch])) == ["already applied"]
    assert patching.revert(old).written
    assert snapshot(old) == pristine
    assert not (old / "two").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("no diff at all\n", "holds no unified diff"),
        (DIFF.replace("@@ -8,3 +8,3 @@", "@@ -8,9 +8,9 @@"), "is no unified diff"),
        ("diff --git a/x b/x\nold mode 100644\nnew mode 100755\n", "changes of mode"),
        ("diff --git a/x b/x\nnew file mode 120000\n--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+/etc\n", "links"),
        ("diff --git a/x b/x\nindex 1..2 100644\nBinary files a/x and b/x differ\n", "binary content"),
    ],
)
def test_refusals(tmp_path: Path, text: str, message: str) -> None:
    tree, patch = made(tmp_path, diff=text)
    with pytest.raises(PatchError, match=message):
        patching.apply(tree, files=[patch])


@pytest.mark.parametrize(
    ("before", "after"),
    [(TEXT, RESULT), ("", "x\n"), ("x", "x\n"), ("x\n", ""), ("a\r\nb\n", "a\nb\r\n"), ("a\x0cb\n", "a\x0cc")],
)
def test_diffs_of_our_own_are_what_git_takes(tmp_path: Path, before: str, after: str) -> None:
    write_tree(tmp_path, {"f": ""})
    (tmp_path / "f").write_bytes(before.encode())
    text = unified(before.encode(), after.encode(), "f")
    subprocess.run(["git", "apply", "--allow-empty", "-"], cwd=tmp_path, input=text.encode(), check=True)
    assert (tmp_path / "f").read_bytes() == after.encode()
