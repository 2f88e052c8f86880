"""A run that was stopped or killed goes on as if nothing had happened."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mcore_compat.errors import ConfigError
from mcore_compat.rl.config import TrainerConfig
from mcore_compat.rl.interrupt import StopRequest
from mcore_compat.rl.report import Report
from mcore_compat.rl.run_folder import choose_folder
from tests.rl.test_trainer import StopAfter, learned, reward, run, start

__all__ = ["start"]  # a fixture
STEPS = "trainer.total_training_steps=4"


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Everything that a loop remembers is in use: adaptive KL weight, shuffled mini-batches, several epochs."""
    return [
        STEPS,
        "data.train_max_samples=20",
        "algorithm.use_kl_in_reward=true",
        "algorithm.kl_ctrl={type: adaptive, kl_coef: 0.1, target_kl: 1.0e-6, horizon: 100}",
        "actor_rollout_ref.actor.optim.lr_decay_style=linear",
        reward(tmp_path_factory.mktemp("reward"), "return float(len(solution_str))"),
    ]


@pytest.fixture(scope="module")
def whole(start: Path, settings: list[str], tmp_path_factory: pytest.TempPathFactory) -> Report:
    """The run that nothing interrupts."""
    return run(start, tmp_path_factory.mktemp("whole"), *settings, "trainer.save_freq=2")


def stopped(start: Path, folder: Path, step: int, *settings: str) -> Report:
    stop = StopRequest()
    return run(start, folder, *settings, talk=StopAfter(step, stop), stop=stop)


def lines(folder: Path) -> list[int]:
    return [json.loads(line)["step"] for line in (folder / "metrics.jsonl").read_text().splitlines()]


def saved(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "checkpoints").glob("*"))


def test_a_stopped_run_goes_on_to_the_last_bit(start: Path, tmp_path: Path, settings: list[str], whole: Report) -> None:
    here = [*settings, "trainer.save_freq=3"]
    first = stopped(start, tmp_path / "run", 1, *here)
    assert (first.interrupted, saved(tmp_path / "run")) == (True, ["step-2"])
    second = run(start, tmp_path / "run", *here)
    assert learned(second) == learned(whole)
    assert (second.score_before, second.score_after) == (whole.score_before, whole.score_after)
    assert lines(tmp_path / "run") == [0, 1, 2, 3]
    assert saved(tmp_path / "run") == ["step-2", "step-3", "step-4"]


def test_steps_after_the_last_checkpoint_are_done_again(
    start: Path, tmp_path: Path, settings: list[str], whole: Report
) -> None:
    stopped(start, tmp_path / "run", 1, *settings, "trainer.save_freq=10")
    with (tmp_path / "run" / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"step": 2, "actor/lr": 7.0}) + "\n")
    assert learned(run(start, tmp_path / "run", *settings)) == learned(whole)
    assert lines(tmp_path / "run") == [0, 1, 2, 3]


def test_a_finished_run_does_nothing_more(start: Path, settings: list[str], whole: Report) -> None:
    again = run(start, whole.folder, *settings)
    assert (learned(again), again.score_after) == (learned(whole), whole.score_after)


def test_another_run_can_go_on_from_a_checkpoint(
    start: Path, tmp_path: Path, settings: list[str], whole: Report
) -> None:
    path = ["trainer.resume_mode=resume_path", f"trainer.resume_from_path={whole.folder / 'checkpoints' / 'step-2'}"]
    second = run(start, tmp_path / "two", *settings, *path)
    assert learned(second) == learned(whole)[2:]
    assert lines(tmp_path / "two") == [2, 3]
    fresh = run(start, tmp_path / "three", *settings, *path, "trainer.resume_fresh_optimizer=[critic]")
    assert learned(fresh) != learned(second)


def test_nothing_is_saved_unless_asked(start: Path, tmp_path: Path) -> None:
    run(start, tmp_path, "trainer.total_training_steps=1")
    assert not (tmp_path / "checkpoints").exists()


def test_how_many_stay_is_passed_on(start: Path, tmp_path: Path) -> None:
    run(start, tmp_path, "trainer.total_training_steps=1", "trainer.save_freq=1", "trainer.max_ckpt_to_keep=3")
    assert json.loads((tmp_path / "checkpoints" / "step-1" / "state.json").read_text())["keep"] == 3


def test_a_folder_is_used_again_only_to_go_on(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    (folder / "checkpoints" / "step-1").mkdir(parents=True)
    (folder / "metrics.jsonl").write_text("")
    assert choose_folder(str(folder), "ppo", TrainerConfig()) == folder
    inside = TrainerConfig(resume_mode="resume_path", resume_from_path=str(folder / "checkpoints" / "step-1"))
    assert choose_folder(str(folder), "ppo", inside) == folder
    outside = TrainerConfig(resume_mode="resume_path", resume_from_path=str(tmp_path))
    for trainer in (TrainerConfig(resume_mode="disable"), outside, None):
        with pytest.raises(ConfigError, match="not empty"):
            choose_folder(str(folder), "ppo", trainer)


@pytest.mark.parametrize("override", ["trainer.resume_mode=resume_path", "trainer.resume_from_path=somewhere"])
def test_half_an_order_to_resume_is_refused(start: Path, tmp_path: Path, override: str) -> None:
    with pytest.raises(ConfigError, match="neither"):
        run(start, tmp_path, override)
