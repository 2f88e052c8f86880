"""The process is killed at random moments: what is left is explained, and brought to an end either way."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.launch import ROOT

HERE = Path(__file__).parent
KILLS = 30


@pytest.fixture(scope="module")
def kills(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    command = [sys.executable, str(HERE / "program.py"), str(tmp_path_factory.mktemp("trees"))]
    done = subprocess.run(
        [*command, str(HERE / "three-files.patch"), str(KILLS)],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_every_kill_came_and_some_came_half_way(kills: list[dict[str, Any]]) -> None:
    assert len(kills) == KILLS
    assert all(kill["died"] for kill in kills)
    assert {kill["act"] for kill in kills if "files are written" in kill["told"]} == {"apply", "revert"}
    assert sum(kill["half"] for kill in kills) >= KILLS // 3


def test_status_explains(kills: list[dict[str, Any]]) -> None:
    for kill in kills:
        article = "an" if kill["act"] == "apply" else "a"
        begun = kill["told"].startswith(f"{article} {kill['act']} was interrupted: ")
        assert begun or kill["told"].startswith("something was interrupted before") or not kill["half"], kill


def test_apply_and_revert_bring_it_to_an_end(kills: list[dict[str, Any]]) -> None:
    assert [kill for kill in kills if not kill["whole"]] == []
