"""Case C14: absent optional packages and newer ones than a release knew stop nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from packaging.version import Version

from tests.contract.conftest import Found
from tests.launch import release_environment

# First release with each set.
STAND_INS = {
    "0.4.0": ["pkg_resources", "transformer_engine"],
    "0.6.0": ["amp_C", "apex", "pkg_resources", "transformer_engine"],
    "0.8.0": ["pkg_resources"],
    "0.9.0": [],
    "0.18.0": ["triton"],
}
LOADED = """
import sys
from mcore_compat.cli._app import app
import mcore_compat
app(sys.argv[1:], standalone_mode=False)
assert mcore_compat.__version__
print(sorted({"torch", "megatron", "transformers"} & sys.modules.keys()), file=sys.stderr)
"""


@pytest.fixture
def result(found: Found, release: str) -> dict[str, Any]:
    (result,) = found(release, 1, "packages.packages")
    return dict(result)


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


def assert_trains(result: dict[str, Any]) -> None:
    updated, norm, changed = result["step"]
    assert updated
    assert norm == pytest.approx(2.039166, rel=1e-5)
    assert changed == 27


def test_a_step_without_optional_packages(result: dict[str, Any]) -> None:
    assert result["installed"] == [], "this environment has what the case says is absent"
    assert_trains(result)


def test_explain_lists_what_stands_in(result: dict[str, Any], release: str) -> None:
    expected = [names for first, names in STAND_INS.items() if Version(first) <= Version(release)][-1]
    assert result["stand-ins"] == expected
    assert all(f"stand-in  {name}: absent" in result["explained"] for name in expected)


@pytest.mark.releases("0.8.0")
def test_current_setuptools_with_a_release_that_imports_pkg_resources(result: dict[str, Any]) -> None:
    assert result["setuptools"] >= 80
    assert result["stand-ins"] == ["pkg_resources"]
    assert_trains(result)


@pytest.mark.releases("0.6.0", "0.12.3")
def test_numpy_2_with_a_release_that_calls_what_it_removed(result: dict[str, Any]) -> None:
    assert result["numpy"] >= 2
    assert "numpy.product: removed in numpy 2" in result["explained"]
    assert result["coordinates"] == [[0, 1], [1, 0]]
    assert_trains(result)
