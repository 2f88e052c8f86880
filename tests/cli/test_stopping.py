"""How a job of two ranks on the real Megatron ends early: nobody hangs, and the run folder is whole."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from mcore_compat.rl.config_load import load_config
from tests.cli.workbench import RELEASE, Bench, errors
from tests.launch import free_port, launch, release_environment

SECONDS_TO_STOP = 60
LATE = """
calls = 0

def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    global calls
    calls += 1
    if calls > 10:
        raise ValueError("out of gold")
    return 1.0
"""


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(tmp_path_factory.mktemp("stopping"))


def test_a_reward_function_that_fails_later_ends_both_processes(bench: Bench, tmp_path: Path) -> None:
    late = bench.file("custom_reward_function.path", "late.py", LATE)
    command = ("train", bench.config, *bench.good, late, f"trainer.default_local_dir={tmp_path / 'run'}")
    first, second = launch("mcore_compat", *command, release=RELEASE, nproc=2, timeout=240)
    assert [(rank.returncode, rank.stopped) for rank in (first, second)] == [(3, False), (3, False)], str(first)
    (error,) = errors(first.stderr)
    assert "late.py:compute_score raised ValueError: out of gold" in error
    assert "Traceback" not in first.stderr + second.stderr
    assert errors(second.stderr) == []
    assert_whole(tmp_path / "run", steps=2)


def test_a_killed_rank_is_one_error_and_the_other_stops(bench: Bench, tmp_path: Path) -> None:
    with torchrun(bench, tmp_path) as job:
        os.kill(rank_process(job.pid, 1), signal.SIGKILL)
        status = job.wait(timeout=SECONDS_TO_STOP)
    said = (tmp_path / "stderr").read_text()
    assert status != 0
    (error,) = errors(said)
    assert error.startswith("error: Another rank stopped while this one was waiting for it")
    assert "/mcore_compat/" not in said, "a traceback of this package"
    assert_whole(tmp_path / "run", steps=2)


def test_ctrl_c_under_torchrun_leaves_the_run_folder_whole(bench: Bench, tmp_path: Path) -> None:
    with torchrun(bench, tmp_path) as job:
        # A terminal sends it to all of them: the launcher, which passes it on once more, and the ranks.
        os.killpg(job.pid, signal.SIGINT)
        status = job.wait(timeout=SECONDS_TO_STOP)
    said = (tmp_path / "stderr").read_text()
    assert status != 0
    assert "stopping after the step in flight" in said
    assert errors(said) == []
    assert "/mcore_compat/" not in said, "a traceback of this package"
    assert_whole(tmp_path / "run", steps=2)


@contextmanager
def torchrun(bench: Bench, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A job of two ranks that has done its second step; whatever is left of it is killed at the end."""
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc-per-node",
        "2",
        "--master-port",
        str(free_port()),
    ]
    command += ["-m", "mcore_compat", "train", str(bench.config), *bench.good]
    command += [f"trainer.default_local_dir={folder / 'run'}"]
    with (folder / "stderr").open("wb") as file:
        job = subprocess.Popen(
            command, env=release_environment(RELEASE), stderr=file, stdout=file, cwd=folder, start_new_session=True
        )
    try:
        wait_for_text(folder / "stderr", "step 2/", job)
        yield job
    finally:
        with suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGKILL)
        job.wait()


def wait_for_text(file: Path, text: str, job: subprocess.Popen[bytes], seconds: float = 200) -> None:
    deadline = time.monotonic() + seconds
    while text not in file.read_text():
        assert job.poll() is None, file.read_text()
        assert time.monotonic() < deadline, file.read_text()
        time.sleep(0.1)


def rank_process(launcher: int, rank: int) -> int:
    """Process number of a rank that the launcher started."""
    for task in Path(f"/proc/{launcher}/task").iterdir():
        for child in (task / "children").read_text().split():
            if f"RANK={rank}".encode() in Path(f"/proc/{child}/environ").read_bytes().split(b"\0"):
                return int(child)
    raise AssertionError(f"no rank {rank} below process {launcher}")


def assert_whole(run: Path, *, steps: int) -> None:
    """All that a run writes before its export is there and can be read."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(len(lines)))
    assert len(lines) >= steps
    assert load_config(run / "config.yaml", world_size=2).trainer.default_local_dir == str(run)
    assert (run / "curves.png").read_bytes()[:4] == b"\x89PNG"
    assert [item.name for item in run.iterdir() if item.name.startswith(".")] == []
