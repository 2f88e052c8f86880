"""``mcore-compat run``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.launch import release_environment


def run(script: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mcore_compat", "run", *arguments[:2], str(script), *arguments[2:]]
    return subprocess.run(command, env=release_environment("0.19.2"), capture_output=True, text=True)


def test_a_script_finds_its_era_and_its_arguments(tmp_path: Path) -> None:
    script = tmp_path / "old.py"
    (tmp_path / "beside.py").write_text("word = 'beside'\n")
    script.write_text(
        "import sys\nfrom megatron.timers import DummyTimer\nfrom beside import word\n"
        "print(__name__, word, DummyTimer().elapsed(), sys.argv[1:])\n"
    )
    done = run(script, "--era", "0.4", "--steps", "3")
    assert done.stdout.splitlines()[-1] == "__main__ beside 0.0 ['--steps', '3']"
    assert done.returncode == 0


def test_no_script(tmp_path: Path) -> None:
    done = run(tmp_path / "absent.py", "--era", "0.4")
    assert done.returncode == 2
    assert "no file" in done.stderr
