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
    assert "2 uses in 1 file that break on 0.6.0" in done.stderr


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
    assert "1 use in 1 file" in done.stderr


def test_fix_leaves_what_works_on_the_target(framework: Path) -> None:
    done = CliRunner().invoke(app, ["audit", str(framework), "--target", "0.4.0", "--fix"])
    assert (done.exit_code, done.stdout) == (0, "")
    assert (framework / "old.py").read_text() == OLD


def test_left_out_files_are_counted_and_named(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("import megatron (\n")
    (tmp_path / "bytes.py").write_bytes(b"name = 'caf\xe9'  # megatron\n")
    done = CliRunner().invoke(app, ["audit", str(tmp_path)])
    assert done.exit_code == 0
    assert f"warning: {tmp_path / 'bad.py'} was left out: invalid syntax" in done.stderr
    assert f"warning: {tmp_path / 'bytes.py'} was left out: " in done.stderr
    assert "no uses in no files that break on 0.19.2; 2 files left out" in done.stderr


def test_a_minor_release_is_its_newest(framework: Path) -> None:
    done = CliRunner().invoke(app, ["audit", str(framework), "--target", "0.12", "--json"])
    assert json.loads(done.stdout)["targets"] == ["0.12.3"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["absent"], "no file or folder absent"),
        (["absent", "--fix"], "no file or folder absent"),
        (["empty"], "no Python file under empty"),
        ([".", "--target", "0.6.7"], "no release of Megatron-Core belongs to '0.6.7'"),
        ([".", "--target", "newest"], "no release of Megatron-Core belongs to 'newest'"),
    ],
)
def test_usage(monkeypatch: pytest.MonkeyPatch, framework: Path, arguments: list[str], message: str) -> None:
    (framework / "empty").mkdir()
    monkeypatch.chdir(framework)
    done = CliRunner().invoke(app, ["audit", *arguments])
    assert done.exit_code == 2
    assert message in done.stderr
    assert "next: " in done.stderr
