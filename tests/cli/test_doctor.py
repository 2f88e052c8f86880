"""``mcore-compat doctor`` on every release: one variant per seam, in under a second, without torch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from mcore_compat.cli._app import app
from mcore_compat.matrix.overlay import overlay
from mcore_compat.matrix.table import releases
from mcore_compat.seams._registry import seams
from tests.detect.trees import checkout
from tests.timing import processor_seconds

NAMES = {seam.name for seam in seams()}
LOADED = """
import atexit, sys
def say():
    print(*[name for name in ("torch", "megatron", "transformers") if name in sys.modules], file=sys.stderr)
atexit.register(say)
from mcore_compat.cli import main
main()
"""


def report(*arguments: str) -> dict[str, Any]:
    result = CliRunner().invoke(app, ["doctor", "--json", *arguments])
    assert result.exit_code == 0, result.stderr
    value: dict[str, Any] = json.loads(result.stdout)
    return value


def test_one_variant_per_seam(release: str) -> None:
    found = report("--root", str(overlay(release)))
    assert found["schema_version"] == 1
    assert found["megatron"]["version"] == release
    assert found["warnings"] == []
    assert found["seams"].keys() == NAMES
    assert all(all(seam[key] for key in ("variant", "since", "why")) for seam in found["seams"].values())


def test_json_of_a_process_on_the_path_loads_no_torch(release: str) -> None:
    environment = os.environ | {"PYTHONPATH": str(overlay(release))}
    done = subprocess.run(
        [sys.executable, "-c", LOADED, "doctor", "--json"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout)["megatron"]["root"] == str(overlay(release))
    assert done.stderr.strip() == ""


def test_under_a_second() -> None:
    root = str(overlay(releases()[-1].version))
    command = [sys.executable, "-m", "mcore_compat", "doctor", "--root", root]
    assert min(processor_seconds(command) for _ in range(3)) < 1.0


def test_people_see_every_seam_on_one_line_each() -> None:
    result = CliRunner().invoke(app, ["doctor", "--root", str(overlay("0.12.3"))])
    lines = result.stdout.splitlines()
    assert lines[0].split() == ["Megatron", "0.12.3", "unpacked"]
    assert {line.split()[0] for line in lines[4:]} == NAMES


def test_newer_release_is_a_warning(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["doctor", "--json", "--root", str(checkout(tmp_path, major=99))])
    assert "newer than" in json.loads(result.stdout)["warnings"][0]


def test_misfit_shows_all_seams_and_exits_4(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["doctor", "--json", "--root", str(checkout(tmp_path))])
    found = json.loads(result.stdout)["seams"]
    assert result.exit_code == 4
    assert found.keys() == NAMES
    assert found["data_parallel"]["variant"] is None
    assert "error: no known call shape of data_parallel" in result.stderr


def test_no_megatron_exits_4_with_a_hint(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["doctor", "--root", str(tmp_path)])
    assert (result.exit_code, result.stdout) == (4, "")
    assert result.stderr.startswith("error: found no megatron/core")
    assert "next: " in result.stderr


@pytest.mark.parametrize(("rank", "speaks"), [("0", True), ("1", False)])
def test_one_rank_speaks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rank: str, speaks: bool) -> None:
    monkeypatch.setenv("RANK", rank)
    result = CliRunner().invoke(app, ["doctor", "--root", str(tmp_path)])
    assert (result.exit_code, bool(result.stderr)) == (4, speaks)


@pytest.mark.parametrize("arguments", [["--help"], ["--version"]])
def test_help_and_version_import_no_command(arguments: list[str]) -> None:
    done = subprocess.run([sys.executable, "-c", LOADED, *arguments], capture_output=True, text=True, check=True)
    assert "mcore-compat" in done.stdout
    assert done.stderr.strip() == ""


def test_unknown_command_is_a_usage_error() -> None:
    assert CliRunner().invoke(app, ["doktor"]).exit_code == 2
