"""Case C14: absent optional packages and newer ones than a release knew stop nothing."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.contract.one_process import checks
from tests.launch import release_environment

STAND_INS = {
    "0.4.0": ["pkg_resources", "transformer_engine"],
    "0.5.0": ["pkg_resources", "transformer_engine"],
    "0.6.0": ["amp_C", "apex", "pkg_resources", "transformer_engine"],
    "0.8.0": ["pkg_resources"],
    "0.12.3": [],
    "0.16.1": [],
    "0.19.2": ["triton"],
}
LOADED = """
import sys
from mcore_compat.cli._app import app
import mcore_compat
app(sys.argv[1:], standalone_mode=False)
assert mcore_compat.__version__
print(sorted({"torch", "megatron", "transformers"} & sys.modules.keys()), file=sys.stderr)
"""


@pytest.mark.parametrize("command", [["doctor", "--json"], ["matrix", "list", "--json"]])
def test_commands_import_no_megatron(release: str, command: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOADED, *command],
        env=release_environment(release),
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout)["schema_version"] == 1
    assert done.stderr.strip() == "[]"


def assert_trains(release: str) -> None:
    updated, norm, changed = checks(release)["packages"]["step"]
    assert updated
    assert norm == pytest.approx(2.039166, rel=1e-5)
    assert changed == 27


def test_a_step_without_optional_packages(release: str) -> None:
    found = checks(release)["packages"]
    assert found["installed"] == [], "this environment has what the case says is absent"
    assert_trains(release)


def test_explain_lists_what_stands_in(release: str) -> None:
    found = checks(release)["packages"]
    assert found["stand-ins"] == STAND_INS.get(release, found["stand-ins"])
    assert all(f"stand-in  {name}: absent" in found["explained"] for name in found["stand-ins"])


@pytest.mark.releases("0.8.0")
def test_current_setuptools_with_a_release_that_imports_pkg_resources(release: str) -> None:
    found = checks(release)["packages"]
    assert found["setuptools"] >= 80
    assert found["stand-ins"] == ["pkg_resources"]
    assert_trains(release)


@pytest.mark.releases("0.6.0", "0.12.3")
def test_numpy_2_with_a_release_that_calls_what_it_removed(release: str) -> None:
    found = checks(release)["packages"]
    assert found["numpy"] >= 2
    assert "numpy.product: removed in numpy 2" in found["explained"]
    assert found["coordinates"] == [[0, 1], [1, 0]]
    assert_trains(release)
