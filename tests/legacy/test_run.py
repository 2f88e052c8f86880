"""``mcore-compat run``."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from mcore_compat.cli._app import app
from mcore_compat.cli.run import _reported
from mcore_compat.legacy.warn import NotServed
from tests.launch import Outcome, launch


def run(*arguments: str) -> Outcome:
    (outcome,) = launch("tests.legacy.programs:command", "run", *arguments, release="0.19.2")
    return outcome


def test_a_script_finds_its_era_and_its_arguments(tmp_path: Path) -> None:
    script = tmp_path / "old.py"
    (tmp_path / "beside.py").write_text("word = 'beside'\n")
    script.write_text(
        "import sys\nfrom megatron.timers import DummyTimer\nfrom beside import word\n"
        "print(__name__, word, DummyTimer().elapsed(), sys.argv[1:])\nsys.exit(7)\n"
    )
    done = run("--era", "0.4", str(script), "-h", "--era", "0.6", "--", "x")
    assert done.stdout.splitlines()[-1] == "__main__ beside 0.0 ['-h', '--era', '0.6', '--', 'x']"
    assert done.returncode == 7


def test_what_a_script_raises_is_printed_from_its_own_first_line(tmp_path: Path) -> None:
    script = tmp_path / "old.py"
    script.write_text("def load():\n    from megatron.arguments import parse_args\n\nload()\n")
    done = run(str(script))
    trace = done.stderr[done.stderr.index("Traceback") :].splitlines()
    assert trace[1] == f'  File "{script}", line 4, in <module>'
    assert any("NotServed: megatron.arguments cannot be served here" in line for line in trace)
    assert done.returncode == 3


@pytest.mark.parametrize(
    ("error", "code", "printed"),
    [
        (ValueError("mine"), 1, "ValueError: mine"),
        (KeyboardInterrupt(), 130, "KeyboardInterrupt"),
        (SyntaxError("no Python", ("old.py", 2, 1, "x = (")), 1, 'File "old.py", line 2'),
        (NotServed("not here", hint="that"), 3, "next: that"),
    ],
)
def test_exit_codes(capsys: pytest.CaptureFixture[str], error: BaseException, code: int, printed: str) -> None:
    assert _reported(error) == code
    assert printed in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["absent.py"], "no file absent.py"),
        (["."], "no file ."),
        (["-m", "absent.at.all"], "no module absent.at.all"),
        (["--era", "0.3", __file__], "no release of Megatron-Core belongs to '0.3'"),
        ([], "Missing argument 'PROGRAM'"),
    ],
)
def test_usage(monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    done = CliRunner().invoke(app, ["run", *arguments])
    assert done.exit_code == 2
    assert message in done.stderr
