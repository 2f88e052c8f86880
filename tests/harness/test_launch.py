"""The launcher that every multi-process test relies on."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.launch import launch, release_environment, run_ranks

PROGRAMS = "tests.harness.programs"


def test_results_come_in_rank_order() -> None:
    results = run_ranks(f"{PROGRAMS}:whoami", 1, 2, release=None, nproc=3)
    assert [result["rank"] for result in results] == ["0", "1", "2"]
    assert all(result["world"] == "3" and result["extra"] == [1, 2] for result in results)


def test_script_gets_text_and_writes_json(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text("import os, sys; open(os.environ['MCORE_COMPAT_RESULT'], 'w').write(f'[{sys.argv[1]}]')")
    assert run_ranks(script, 7, release=None) == [[7]]


def test_module_runs_like_python_m() -> None:
    [outcome] = launch("platform", "--terse", release=None)
    assert outcome.returncode == 0
    assert outcome.stdout.strip()


def test_failing_rank_is_named_with_what_it_printed() -> None:
    with pytest.raises(AssertionError, match=r"(?s)1 rank\(s\) failed.*rank 1: exit 1.*second rank is broken"):
        run_ranks(f"{PROGRAMS}:second_rank_fails", release=None, nproc=2)


def test_hanging_ranks_are_stopped_and_say_where_they_were() -> None:
    started = time.monotonic()
    outcomes = launch(f"{PROGRAMS}:sleep", release=None, nproc=2, timeout=2)
    assert time.monotonic() - started < 10
    assert all(outcome.stopped and "in sleep" in outcome.stderr for outcome in outcomes)


def test_release_comes_first() -> None:
    first, *_ = release_environment("0.6.0")["PYTHONPATH"].split(":")
    assert (Path(first) / "megatron" / "core" / "__init__.py").is_file()
