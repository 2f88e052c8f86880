"""``mcore-compat audit``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from mcore_compat.cli._app import app

OLD = "from megatron.timers import Timers\nfrom megatron.utils import print_rank_0\n"


@pytest.fixture
def framework(tmp_path: Path) -> Path:
    (tmp_path / "old.py").write_text(OLD)
    return tmp_path


def test_findings_for_people(framework: Path) -> None:
    done = CliRunner().invoke(app, ["audit", str(framework), "--target", "0.6.0"])
    assert done.exit_code == 1
    assert f"{framework / 'old.py'}:1: megatron.timers.Timers" in done.stdout
    assert "instead: " in done.stdout
    assert "2 uses in 1 files that break on 0.6.0" in done.stderr


def test_findings_as_json(framework: Path) -> None:
    done = CliRunner().invoke(app, ["audit", str(framework), "--target", "0.5.0", "--target", "0.6.0", "--json"])
    found = json.loads(done.stdout)
    assert (done.exit_code, found["schema_version"], found["targets"]) == (1, 1, ["0.5.0", "0.6.0"])
    assert [finding["breaks"] for finding in found["findings"]] == [["0.5.0", "0.6.0"], ["0.6.0"]]


def test_nothing_found(tmp_path: Path) -> None:
    (tmp_path / "new.py").write_text("import mcore_compat\n")
    done = CliRunner().invoke(app, ["audit", str(tmp_path)])
    assert (done.exit_code, done.stdout) == (0, "")


def test_fix_shows_the_diff_and_what_is_left(framework: Path) -> None:
    done = CliRunner().invoke(app, ["audit", str(framework), "--target", "0.6.0", "--fix"])
    assert done.exit_code == 1
    assert "+from mcore_compat.legacy.utils import print_rank_0" in done.stdout
    assert "1 use in 1 files" in done.stderr


@pytest.mark.parametrize("arguments", [["absent"], [".", "--target", "0.6.7"]])
def test_usage(framework: Path, arguments: list[str]) -> None:
    assert CliRunner().invoke(app, ["audit", *arguments]).exit_code == 2
