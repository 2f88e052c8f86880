"""The runner: a process per release, results kept and taken again, obstacles named and never passed."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mcore_compat.errors import ConfigError
from mcore_compat.matrix.cells import Results
from mcore_compat.matrix.run import selected
from mcore_compat.matrix.suites import SUITES
from mcore_compat.matrix.table import releases
from tests.launch import ROOT
from tests.matrix.checkout import Checkout

# Takes the place of a suite in the copy: one outcome of each kind, by release.
OUTCOMES = """
import pytest

def test_passes(release, record_property):
    record_property("curve:loss", "[1.0, 0.5]")

def test_skips(release):
    pytest.skip("needs a GPU")

def test_fails_on_the_old(release):
    assert release != "0.6.0", "too old"
"""

# A rank that sleeps on the release that runs last.
SLEEPER = """
from pathlib import Path
from tests.launch import run_ranks

def test_sleeps_on_the_new(release):
    if release != "0.6.0":
        run_ranks("tests.matrix.programs.sleeper:sleep", "{pid}", release=release, nproc=1, timeout=60)
"""


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    copy = Checkout(tmp_path_factory.mktemp("run"))
    copy.has("0.6.0")
    copy.has("0.19.2")
    (copy.root / "tests" / "matrix" / "test_probe.py").write_text(OUTCOMES, encoding="utf-8")
    return copy


def run(copy: Checkout, *arguments: str, status: int = 0) -> tuple[dict[str, Any], str]:
    """Cells and what was said on the way."""
    done = copy.run("matrix", "run", "--suite", "probe", "--json", *arguments)
    assert done.returncode == status, done.stdout + done.stderr
    return json.loads(done.stdout)["releases"], done.stderr


def test_each_release_has_its_counts_reasons_and_time(copy: Checkout) -> None:
    cells, said = run(copy, "--only", "0.6.0,0.19.2", status=1)
    assert list(cells) == ["0.6.0", "0.19.2"]
    old, new = cells.values()
    assert (old["status"], old["passed"], old["failed"], old["skipped"]) == ("failed", 1, 1, 1)
    assert "test_fails_on_the_old[0.6.0]: AssertionError: too old" in old["reason"]
    assert (new["status"], new["passed"], new["failed"], new["skipped"]) == ("passed", 2, 0, 1)
    assert new["reason"] == "1 × needs a GPU"
    assert new["seconds"] > 0
    assert "0.19.2 probe: 2 passed, 0 failed, 1 skipped" in said
    kept = Results(copy.cache / "matrix").load("probe", "0.19.2")
    assert kept is not None
    assert kept.series == {"loss": [1.0, 0.5]}


def test_a_second_run_takes_what_passed_and_nothing_changed(copy: Checkout) -> None:
    run(copy, "--only", "0.19.2")
    cells, said = run(copy, "--only", "0.6.0,0.19.2", status=1)
    assert cells["0.19.2"]["passed"] == 2
    assert "0.19.2 probe: 2 passed, 0 failed, 1 skipped in" in said
    assert [line for line in said.splitlines() if line.endswith("as before")] == [said.splitlines()[0]]
    assert said.startswith("[1/2] 0.19.2 ")
    copy.change_table('needs = ["torch>=2.6", "numpy"]', 'needs = ["torch>=2.6"]')
    assert "as before" not in run(copy, "--only", "0.19.2")[1]


def test_ctrl_c_keeps_what_is_done_and_stops_the_rest(copy: Checkout) -> None:
    suite, pid = copy.root / "tests" / "matrix" / "test_probe.py", copy.root / "pid"
    before = suite.read_text(encoding="utf-8")
    suite.write_text(SLEEPER.format(pid=str(pid)), encoding="utf-8")
    try:
        with copy.start("matrix", "run", "--suite", "probe", "--only", "0.6.0,0.19.2", "--jobs", "1") as process:
            wait_for(pid.exists)
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=60)
        assert process.returncode == 130
        assert "what is done is kept" in said
        wait_for(lambda: not Path("/proc", pid.read_text(encoding="utf-8")).exists())
        cells, said = run(copy, "--only", "0.6.0")
        assert cells["0.6.0"]["status"] == "passed"
        assert "as before" in said
    finally:
        suite.write_text(before, encoding="utf-8")


def wait_for(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_release_that_cannot_run_is_skipped_with_the_reason(copy: Checkout) -> None:
    copy.change_table(
        'version = "0.9.0"', 'version = "0.9.0"\nlevel = "probe"\nnote = "no such machine"\nneeds = ["torch>=99"]'
    )
    done = copy.run("matrix", "run", "--suite", "contract", "--json", "--only", "0.9.0,0.10.0")
    cells = json.loads(done.stdout)["releases"]
    assert {cell["status"] for cell in cells.values()} == {"skipped"}
    assert cells["0.9.0"]["reason"] == "verified up to probe only: no such machine"
    assert cells["0.10.0"]["reason"].startswith("needs torch>=99, this is 2.")
    assert done.returncode == 0


def test_outside_a_checkout_the_error_says_how_to_get_one(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "mcore_compat", tmp_path / "mcore_compat", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "matrix" / "releases.toml", tmp_path / "mcore_compat" / "matrix")
    done = subprocess.run(
        [sys.executable, "-m", "mcore_compat", "matrix", "run"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "the suites are the tests of the repository" in done.stderr
    assert "next: clone the mcore_compat repository" in done.stderr


@pytest.mark.parametrize(
    ("only", "expected"),
    [
        (["0.19.2", "0.4.0"], ["0.4.0", "0.19.2"]),
        (["0.6.0,0.5.0"], ["0.5.0", "0.6.0"]),
        ([">=0.18"], ["0.18.0", "0.18.2", "0.19.0", "0.19.2"]),
        ([], [row.version for row in releases()]),
    ],
)
def test_releases_are_chosen_by_name_or_specifier(only: list[str], expected: list[str]) -> None:
    assert selected(only, SUITES["contract"]) == expected


def test_curves_always_have_something_to_be_compared_with() -> None:
    assert selected(["0.6.0"], SUITES["ppo"]) == ["0.6.0", "0.19.2"]


@pytest.mark.parametrize("only", ["0.6.9", ">=x"])
def test_a_release_that_nobody_knows_is_refused(only: str) -> None:
    with pytest.raises(ConfigError, match=r"0\.6\.9|is no version specifier"):
        selected([only], SUITES["probe"])
