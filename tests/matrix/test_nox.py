"""The nox sessions are the runner's suites."""

from __future__ import annotations

import json
import subprocess
import sys

from mcore_compat.matrix.suites import SUITES
from tests.launch import ROOT


def test_each_suite_is_a_session() -> None:
    command = [sys.executable, "-m", "nox", "-f", str(ROOT / "matrix" / "noxfile.py"), "--list", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    sessions = {session["name"]: session["description"] for session in json.loads(done.stdout)}
    assert sessions.pop("report") == "One page of all results."
    assert sessions == {suite.name: suite.doc for suite in SUITES.values()}
