"""``train`` and ``demo`` as processes: what goes to stdout and stderr, exit codes, and signals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from mcore_compat.rl import sums
from tests.launch import ROOT

CONFIG = """
data:
  train_batch_size: 4
  max_prompt_length: 4
  max_response_length: 3
  val_max_samples: 4
actor_rollout_ref:
  actor: {ppo_mini_batch_size: 4, optim: {lr: 1e-3}}
trainer: {total_training_steps: 2, logger: [console]}
"""


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("start")
    sums.write_model(folder / "model", 0)
    sums.write_prompts(folder / "sums.jsonl")
    (folder / "run.yaml").write_text(CONFIG)
    return folder


def settings(start: Path, output: Path, *more: str) -> list[str]:
    return [
        str(start / "run.yaml"),
        f"data.train_files={start / 'sums.jsonl'}",
        f"actor_rollout_ref.model.path={start / 'model'}",
        f"trainer.default_local_dir={output}",
        *more,
    ]


def app(*arguments: str, rank: str = "0") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.cli.torch_app", *arguments]
    environment = {**os.environ, "RANK": rank}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=240)


def test_json_is_the_last_and_only_thing_on_stdout(start: Path, tmp_path: Path) -> None:
    result = app("train", *settings(start, tmp_path / "run"), "--json")
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert [found["schema_version"], found["megatron"], len(found["steps"])] == [1, "torch", 2]
    assert found["steps"][0]["critic/kl"] == 0.0
    assert found["export"] == str(tmp_path / "run" / "actor")
    assert "step 2/2" in result.stderr


def test_the_demo_prints_both_scores(tmp_path: Path) -> None:
    result = app("demo", "--steps", "1", "--output", str(tmp_path / "run"))
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("validation score: 0.")
    assert str(tmp_path / "run" / "curves.png") in result.stdout
    assert "warm-up 300/300" in result.stderr


@pytest.mark.parametrize(
    ("override", "code", "words"),
    [
        ("trainer.total_steps=1", 2, ["'trainer.total_steps'", "did you mean 'trainer.total_training_steps'"]),
        ("data.train_files=absent.jsonl", 3, ["absent.jsonl"]),
    ],
)
def test_bad_input_is_one_error_and_an_exit_code(
    start: Path, tmp_path: Path, override: str, code: int, words: Sequence[str]
) -> None:
    result = app("train", *settings(start, tmp_path / "run", override))
    assert result.returncode == code
    assert result.stdout == ""
    assert [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    assert "Traceback" not in result.stderr
    assert all(word in result.stderr for word in words), result.stderr
    assert not (tmp_path / "run").exists()


def test_other_ranks_leave_the_talking_to_rank_zero(start: Path, tmp_path: Path) -> None:
    result = app("train", *settings(start, tmp_path / "run", "trainer.total_steps=1"), rank="1")
    assert (result.returncode, result.stdout, result.stderr) == (2, "", "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_run_after_the_step_in_flight(start: Path, tmp_path: Path, number: signal.Signals) -> None:
    arguments = settings(start, tmp_path / "run", "trainer.total_training_steps=100000")
    command = [sys.executable, "-m", "tests.cli.torch_app", "train", *arguments]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("step 2/"):
            break
    process.send_signal(number)
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 130, errors
    assert "stopping after the step in flight" in errors
    steps = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert f"stopped after step {len(steps)} of 100000" in errors
    assert 2 <= len(steps) < 100000
    assert f"policy: {tmp_path / 'run' / 'actor'}" in output
    assert sums.score_folder(tmp_path / "run" / "actor") >= 0
