"""Patches in memory: what runs is patched, what lies on disk is not, and places are those of the files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mcore_compat.matrix.overlay import overlay
from mcore_compat.patching.compiling import compiled, line_map
from tests.launch import ROOT
from tests.patching.trees import ALPHA, PATCH, PATCHED, PATH, snapshot, tree_with

RUNNABLE = ALPHA.replace("log(", "print(").replace("factor(self, x):", "factor(self, x):\n        assert x < 100")
RULES = PATCH.read_text(encoding="utf-8").replace("log(", "print(")
PRELUDE = """
import json, sys, traceback
from pathlib import Path
from mcore_compat import explain, patching
from mcore_compat.errors import McoreCompatError
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "add-four.yaml").write_text(RULES, encoding="utf-8")
    return tree_with(tmp_path / "tree", RUNNABLE)


def run(tree: Path, program: str) -> Any:
    """What the program prints last, with that tree in front."""
    return run_beside(tree.parent, tree, program)


def run_beside(folder: Path, tree: Path, program: str) -> Any:
    """The same, run in that folder, which also holds what is kept."""
    environment = os.environ | {
        "PYTHONPATH": f"{tree}{os.pathsep}{ROOT}",
        "MCORE_COMPAT_CACHE": str(folder / "cache"),
    }
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PRELUDE + program],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


# Prints what ran, where, and what explain() says about it.
TELLING = """
results = patching.load(["add-four.yaml"])
from megatron.core.alpha import Scaler
scaler = Scaler()
value = scaler.scale(3)
try:
    scaler.scale(200)
except AssertionError as error:
    frames = [[frame.filename, frame.lineno, frame.line] for frame in traceback.extract_tb(error.__traceback__)[1:]]
import inspect
print(json.dumps({
    "states": [result.state for result in results], "value": value, "seen": scaler.seen, "frames": frames,
    "explained": [[action.kind, action.name, action.why] for action in patching.memory.IN_MEMORY],
    "source": inspect.getsource(Scaler.factor),
}))
"""
SCALE_3 = "import megatron.core.alpha as a; print(json.dumps(a.Scaler().scale(3)))"
WITHOUT_TOOLS = "patching.rules.judge_text = patching.memory.compiled = None\n"


def test_runs_patched_and_tells_real_lines(tree: Path) -> None:
    before = snapshot(tree)
    found = run(tree, TELLING)
    file = str(tree / "megatron/core/alpha.py")
    assert (found["states"], found["value"], found["seen"]) == (["applied"], 13, [3, 200])
    assert found["frames"] == [
        [file, 20, "return self.factor(x) * x  # no sum"],
        [file, 23, "assert x < 100"],
    ]
    assert found["explained"] == [
        ["patch", "add-four", "in memory, at megatron/core/alpha.py:19, megatron/core/alpha.py:20"]
    ]
    assert found["source"].startswith("    def factor(self, x):\n        assert")
    assert snapshot(tree) == before | {name: held for name, held in snapshot(tree).items() if "__pycache__" in name}
    assert not [name for name in snapshot(tree) if "alpha" in name and name.endswith(".pyc")]
    assert run(tree, WITHOUT_TOOLS + TELLING) == found


def test_what_is_kept_follows_patch_and_file(tree: Path) -> None:
    program = "patching.load(['add-four.yaml']); " + SCALE_3
    assert run(tree, program) == 13
    (tree.parent / "add-four.yaml").write_text(RULES.replace("+ 4", "+ 5"), encoding="utf-8")
    assert run(tree, program) == 14
    (tree / PATH).write_text(RUNNABLE.replace("return self.factor(x) * x", "return self.factor(x) * 2 * x"))
    assert run(tree, program) == 23


def test_what_is_kept_is_of_a_python_that_treats_asserts_alike(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = """
patching.load(["add-four.yaml"])
from megatron.core.alpha import Scaler
try:
    print(Scaler().scale(200))
except AssertionError:
    print(0)
"""
    assert run(tree, program) == 0
    monkeypatch.setenv("PYTHONOPTIMIZE", "1")
    assert run(tree, program) == 40004


def test_unpatched_byte_code_is_not_taken(tree: Path) -> None:
    assert run(tree, SCALE_3) == 9
    assert run(tree, "patching.load(['add-four.yaml']); " + SCALE_3) == 13
    assert run(tree, SCALE_3) == 9


@pytest.mark.parametrize(
    ("program", "kind", "message"),
    [
        ("import megatron.core.alpha; patching.load(['add-four.yaml'])", "EnvironmentMismatch", "was imported before"),
        ("patching.load(['no-such-patch'])", "ConfigError", "no patch 'no-such-patch'"),
        ("patching.load(['fork.diff'])", "ConfigError", "fork.diff is a unified diff"),
        ("patching.load(['broken.yaml'])", "PatchError", "broken: not applicable"),
    ],
)
def test_refusals_patch_nothing(tree: Path, program: str, kind: str, message: str) -> None:
    broken = RULES.replace("add-four", "broken").replace("print(", "no_such_call(")
    (tree.parent / "broken.yaml").write_text(broken, encoding="utf-8")
    found = run(
        tree,
        f"""
finders = list(sys.meta_path)
try:
    {program}
except McoreCompatError as error:
    print(json.dumps([type(error).__name__, str(error), sys.meta_path == finders]))
""",
    )
    assert (found[0], found[2]) == (kind, True)
    assert message in found[1]


def test_works_with_the_hook_of_prepare_on_either_side(tree: Path) -> None:
    for order in (
        ("hook.install()", "patching.load(['add-four.yaml'])"),
        ("patching.load(['add-four.yaml'])", "hook.install()"),
    ):
        program = f"""
from mcore_compat.runtime.hooks import Hook
hook = Hook({{}}, {{}}, {{"megatron.core.alpha": lambda module: setattr(module, "repaired", True)}})
{order[0]}
{order[1]}
import megatron.core.alpha as a
print(json.dumps([a.Scaler().scale(3), a.repaired]))
"""
        assert run(tree, program) == [13, True]


def test_repair_leaves_alone_what_a_patch_has_mended(tmp_path: Path) -> None:
    program = """
import mcore_compat
mcore_compat.prepare("cpu")
patching.load(["fp32-optimizer-state"])
from megatron.core.optimizer.optimizer import FP32Optimizer
print(json.dumps([FP32Optimizer.sharded_state_dict.__module__, *FP32Optimizer.__abstractmethods__]))
"""
    assert run_beside(tmp_path, overlay("0.6.0"), program) == ["megatron.core.optimizer.optimizer"]


def test_second_load_adds_to_the_first_and_unload_ends_it(tree: Path) -> None:
    later = RULES.replace("add-four", "later").replace("print($$$ARGS)", "return $ANY + 4").partition("    edits:")[0]
    later += "    edits:\n      - rule: {pattern: print($$$ARGS)}\n        fix: x = x + 1\n"
    later += "    ensures:\n      - rule: {pattern: x = x + 1}\nexamples: [{before: a, after: b}]\n"
    (tree.parent / "later.yaml").write_text(later, encoding="utf-8")
    program = """
finders = list(sys.meta_path)
patching.load(["add-four.yaml"])
patching.load(["later.yaml"])
import megatron.core.alpha as a
value = a.Scaler().scale(3)
patching.unload()
del sys.modules["megatron.core.alpha"]
import megatron.core.alpha as a
print(json.dumps([value, a.Scaler().scale(3), sys.meta_path == finders]))
"""
    assert run(tree, program) == [20, 9, True]


def test_file_edited_after_loading(tree: Path) -> None:
    program = """
patching.load(["add-four.yaml"])
Path("tree/megatron/core/alpha.py").write_text("x = 1\\n")
try:
    import megatron.core.alpha
except McoreCompatError as error:
    print(json.dumps(str(error)))
"""
    assert "changed since its patches were loaded" in run(tree, program)


def test_matrix_exec_patches_every_python_of_the_command() -> None:
    program = "import megatron; from mcore_compat import explain; print([each.name for each in explain().patches])"
    command = [sys.executable, "-m", "mcore_compat", "matrix", "exec", "0.7.0", "--patched"]
    rest = ["--", sys.executable, "-W", "ignore", "-c", program]
    fits = subprocess.run([*command, "reported-loss-kept,cp-comm-type-index", *rest], capture_output=True, text=True)
    assert fits.stdout.splitlines() == ["['reported-loss-kept']"], fits.stderr
    unknown = subprocess.run([*command, "no-such-patch", *rest], capture_output=True, text=True)
    assert (unknown.returncode, unknown.stdout) == (2, "")


@pytest.mark.parametrize(
    ("before", "after", "numbers"),
    [
        ("a\nb\nc\n", "a\nB\nc\n", [1, 2, 3, 4]),
        ("a\nb\n", "a\nx\ny\nb\n", [1, 1, 1, 2, 3]),
        ("a\nb\nc\nd\n", "a\nd\n", [1, 4, 5]),
        ("a\nb\nc\n", "x\na\nB\nC\nD\nc\n", [1, 1, 2, 2, 2, 3, 4]),
        ("a\n" * 20 + "b\n", "x\n" + "a\n" * 20 + "y\nb\n", [1, *range(1, 21), 20, 21, 22]),
    ],
)
def test_line_map(before: str, after: str, numbers: list[int]) -> None:
    assert line_map(before.encode(), after.encode())[1:] == numbers


def test_code_of_lines_that_collapse() -> None:
    after = "x = [\n  n\n      for n in\n range(3)\n if n] + [\nsum(\n[1,\n2])]\n"
    code = compiled(b"x = 1\n", after.encode(), "a.py")
    scope: dict[str, Any] = {}
    exec(code, scope)
    assert scope["x"] == [1, 2, 3]


def test_patched_text_of_the_story_is_numbered_as_the_file() -> None:
    numbers = line_map(ALPHA.encode(), PATCHED.encode())
    old, new = ALPHA.split("\n"), PATCHED.split("\n")
    moved = [(new[at - 1].strip(), old[numbers[at] - 1].strip()) for at in range(1, len(numbers))]
    assert [pair for pair in moved if pair[0] != pair[1]] == [
        ("if self.keeps:", "return self.factor(x) * x  # no sum"),
        ("self.seen.append(x)", "return self.factor(x) * x  # no sum"),
        ("return self.factor(x) * x + 4  # no sum", "return self.factor(x) * x  # no sum"),
    ]
