"""Bad input, lost ranks and Ctrl-C on the real Megatron, two ranks: one clear error on rank 0, and nobody hangs."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from mcore_compat.rl import sums
from mcore_compat.rl.config_load import load_config
from tests.launch import free_port, launch, release_environment, run_ranks

RELEASE = "0.19.2"
SECONDS_TO_STOP = 60
MODEL = "actor_rollout_ref.model.path"
CONFIG = """
data:
  train_batch_size: 4
  max_prompt_length: 4
  max_response_length: 3
  val_max_samples: 4
  shuffle: false
actor_rollout_ref:
  actor: {ppo_mini_batch_size: 4, optim: {lr: 1e-3}}
trainer: {total_training_steps: 100000, val_before_train: false, logger: [console], device: cpu}
"""
REWARD = "def compute_score(data_source, solution_str, ground_truth, extra_info=None):\n    "
REWARDS = "def compute_score(data_sources, solution_strs, ground_truths, extra_infos):\n    "
LATE = """
calls = 0

def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    global calls
    calls += 1
    if calls > 10:
        raise ValueError("out of gold")
    return 1.0
"""


class Bench:
    """A good run's model, prompts and settings, and damaged copies of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = folder / "run.yaml"
        sums.write_model(folder / "model", 0)
        sums.write_prompts(folder / "sums.jsonl")
        self.config.write_text(CONFIG)
        self.good = [f"data.train_files={folder / 'sums.jsonl'}", f"{MODEL}={folder / 'model'}"]

    def model(self, name: str, damage: Callable[[Path], object]) -> str:
        """A copy of the model that was damaged."""
        copy = self.folder / name
        shutil.copytree(self.folder / "model", copy)
        damage(copy)
        return f"{MODEL}={copy}"

    def file(self, key: str, name: str, text: str) -> str:
        """A setting that points to a file with this text."""
        (self.folder / name).write_text(text)
        return f"{key}={self.folder / name}"


def change_json(name: str, **values: object) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        file = folder / name
        kept = {key: value for key, value in json.loads(file.read_text()).items() if values.get(key, value) is not None}
        file.write_text(json.dumps(kept | {key: value for key, value in values.items() if value is not None}))

    return change


def shorten_a_weight(folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    weights = load_file(folder / "model.safetensors")
    weights["model.norm.weight"] = weights["model.norm.weight"][:63].clone()
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def make_cases(bench: Bench) -> dict[str, list[str]]:
    prompts = (bench.folder / "sums.jsonl").read_text().splitlines(keepends=True)
    malformed = "".join([*prompts[:2], prompts[2][:9] + "\n", *prompts[3:]])
    scored_by = "custom_reward_function.path"
    cases = {
        "missing folder": f"{MODEL}={bench.folder / 'absent'}",
        "broken config": bench.model("broken", lambda folder: (folder / "config.json").write_text('{"model_type": ')),
        "wrong shape": bench.model("short", shorten_a_weight),
        "unknown architecture": bench.model("unknown", change_json("config.json", model_type="gpt2")),
        "no pad token": bench.model("padless", change_json("tokenizer_config.json", pad_token=None)),
        "empty prompts": bench.file("data.train_files", "empty.jsonl", ""),
        "malformed prompts": bench.file("data.train_files", "malformed.jsonl", malformed),
        "reward raises": bench.file(scored_by, "raises.py", REWARD + "raise ValueError('no gold')\n"),
        "reward is NaN": bench.file(scored_by, "nan.py", REWARD + "return float('nan')\n"),
        "rewards too few": bench.file(scored_by, "few.py", REWARDS + "return [1.0]\n"),
        "heads": bench.model("odd", change_json("config.json", num_attention_heads=1, num_key_value_heads=1)),
        "small batch": "data.train_batch_size=1",
    }
    more = {
        "heads": ["actor_rollout_ref.actor.megatron.tensor_model_parallel_size=2"],
        "small batch": ["actor_rollout_ref.actor.ppo_mini_batch_size=1"],
    }
    return {
        name: [*bench.good, case, *more.get(name, []), f"trainer.default_local_dir={bench.folder / 'runs' / name}"]
        for name, case in cases.items()
    }


# Case -> exit status and what the error names.
REFUSED: dict[str, tuple[int, list[str]]] = {
    "missing folder": (3, ["absent", MODEL]),
    "broken config": (3, ["broken", "config.json"]),
    "wrong shape": (3, ["model.norm.weight", "(63,)", "(64,)"]),
    "unknown architecture": (3, ["gpt2", "llama", "qwen2", "qwen3"]),
    "no pad token": (3, ["padless", "pad_token"]),
    "empty prompts": (3, ["empty.jsonl is empty"]),
    "malformed prompts": (3, ["malformed.jsonl, line 3"]),
    "reward raises": (3, ["raises.py:compute_score", "ValueError: no gold", "sample 0"]),
    "reward is NaN": (3, ["nan.py:compute_score", "nan", "sample 0"]),
    "rewards too few": (3, ["few.py:compute_score", "1 scores for 4 samples"]),
    "heads": (2, ["num_attention_heads (1)", "tensor_model_parallel_size (2)"]),
    "small batch": (2, ["data.train_batch_size=1", "2 data-parallel ranks"]),
}


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(tmp_path_factory.mktemp("bad-input"))


@pytest.fixture(scope="module")
def refused(bench: Bench) -> list[dict[str, dict[str, Any]]]:
    """What each rank said to each case; all cases in one start of two ranks."""
    arguments = (str(bench.config), make_cases(bench))
    return run_ranks("tests.cli.refusals:refuse", *arguments, release=RELEASE, nproc=2, timeout=240)


def errors(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("error: ")]


@pytest.mark.parametrize("name", REFUSED)
def test_one_error_on_rank_zero_names_the_item(
    bench: Bench, refused: list[dict[str, dict[str, Any]]], name: str
) -> None:
    status, words = REFUSED[name]
    assert [rank[name]["status"] for rank in refused] == [status, status], refused[0][name]
    assert [rank[name]["stdout"] for rank in refused] == ["", ""]
    first, second = (rank[name]["stderr"] for rank in refused)
    assert len(errors(first)) == 1
    assert all(word in first for word in words), first
    assert errors(second) == []
    run = bench.folder / "runs" / name
    assert not run.exists() or {item.name for item in run.iterdir()} == {"config.yaml"}


def test_a_reward_function_that_fails_later_ends_both_processes(bench: Bench, tmp_path: Path) -> None:
    late = bench.file("custom_reward_function.path", "late.py", LATE)
    command = ("train", bench.config, *bench.good, late, f"trainer.default_local_dir={tmp_path / 'run'}")
    first, second = launch("mcore_compat", *command, release=RELEASE, nproc=2)
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
