from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from mcore_compat.errors import ConfigError, DataError, ReferenceMismatch
from mcore_compat.rl import metrics, sums
from mcore_compat.rl.config_load import config_from
from mcore_compat.rl.interrupt import StopRequest
from mcore_compat.rl.progress import Lines, Silent, Talk
from mcore_compat.rl.report import Report
from mcore_compat.rl.trainer import VALIDATION_SCORE, train
from tests.rl.torch_backend import TorchBackend, TorchModel

TOKENS = len(sums.CHARACTERS)


@pytest.fixture(scope="session")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("start")
    sums.write_model(folder / "model", 0)
    sums.write_prompts(folder / "sums.jsonl")
    return folder


def values(start: Path) -> dict[str, Any]:
    return {
        "data": {
            "train_files": str(start / "sums.jsonl"),
            "train_batch_size": 8,
            "max_prompt_length": 4,
            "max_response_length": 3,
            "val_max_samples": 10,
            "val_files": str(start / "sums.jsonl"),
        },
        "actor_rollout_ref": {
            "model": {"path": str(start / "model")},
            "actor": {"ppo_mini_batch_size": 4, "optim": {"lr": 1e-3}},
            "rollout": {"n": 2},
        },
        "trainer": {"total_training_steps": 3, "logger": ["console"]},
    }


def run(
    start: Path,
    folder: Path,
    *overrides: str,
    backend: TorchBackend | None = None,
    talk: Talk | None = None,
    stop: StopRequest | None = None,
) -> Report:
    config = config_from(values(start), overrides)
    backend = backend or TorchBackend(TOKENS)
    return train(config, backend, folder, talk=talk or Silent(), stop=stop or StopRequest())


def reward(folder: Path, body: str) -> str:
    file = folder / "reward.py"
    file.write_text(f"def compute_score(data_source, solution_str, ground_truth, extra_info=None):\n    {body}\n")
    return f"custom_reward_function.path={file}"


def learned(report: Report) -> list[dict[str, float]]:
    return [
        {name: value for name, value in step.items() if not name.startswith(("timing_s", "perf"))}
        for step in report.steps
    ]


def test_a_run_reports_every_step_and_leaves_its_files(start: Path, tmp_path: Path) -> None:
    report = run(start, tmp_path / "run")
    assert len(report.steps) == 3
    assert report.steps[0]["critic/kl"] == 0.0
    assert all(step["critic/kl"] > 0 for step in report.steps[1:])
    assert all(step["actor/param_change"] > 0 for step in report.steps)
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert lines == [{"step": step, **found} for step, found in enumerate(report.steps)]
    assert {item.name for item in (tmp_path / "run").iterdir()} == {
        "actor",
        "config.yaml",
        "curves.png",
        "metrics.jsonl",
    }


def test_every_reported_metric_is_in_the_table(start: Path, tmp_path: Path) -> None:
    overrides = ["actor_rollout_ref.actor.use_kl_loss=true", "trainer.total_training_steps=1"]
    report = run(start, tmp_path, *overrides)
    assert set(report.steps[0]) == metrics.names()


def test_the_report_is_one_json_object(start: Path, tmp_path: Path) -> None:
    report = run(start, tmp_path, "trainer.total_training_steps=1")
    found = json.loads(json.dumps(report.as_json(), allow_nan=False))
    assert (found["schema_version"], found["megatron"]) == (1, "torch")
    assert found["score_after"] == found["steps"][0][VALIDATION_SCORE]
    assert 0 <= found["score_before"] <= 1
    assert found["export"] == str(tmp_path / "actor")


def test_the_exported_policy_answers_as_the_run_did(start: Path, tmp_path: Path) -> None:
    overrides = ["data.val_max_samples=100", "actor_rollout_ref.actor.optim.lr=3e-3"]
    report = run(start, tmp_path, *overrides, reward(tmp_path, "return float(len(solution_str))"))
    exact = run(start, tmp_path / "again", *overrides, f"actor_rollout_ref.model.path={report.export}")
    assert exact.score_before == sums.score_folder(report.export)
    assert report.score_after is not None


def test_a_run_repeats_to_the_last_bit(start: Path, tmp_path: Path) -> None:
    torch.manual_seed(1)
    first = run(start, tmp_path / "a")
    torch.manual_seed(2)
    second = run(start, tmp_path / "b")
    assert learned(first) == learned(second)
    other = run(start, tmp_path / "c", "actor_rollout_ref.rollout.seed=1")
    assert learned(other) != learned(first)


def test_the_reward_rises(start: Path, tmp_path: Path) -> None:
    longer = reward(tmp_path, "return float(len(solution_str))")
    overrides = ["trainer.total_training_steps=12", "actor_rollout_ref.actor.optim.lr=3e-3", longer]
    scores = [step["critic/score/mean"] for step in run(start, tmp_path / "run", *overrides).steps]
    assert sum(scores[-3:]) / 3 > sum(scores[:3]) / 3 + 0.3


def test_validation_is_taken_as_often_as_asked(start: Path, tmp_path: Path) -> None:
    report = run(start, tmp_path, "trainer.test_freq=2", "trainer.val_before_train=false")
    assert [VALIDATION_SCORE in step for step in report.steps] == [False, True, True]
    assert report.score_before is None


def test_epochs_give_the_number_of_steps(start: Path, tmp_path: Path) -> None:
    overrides = ["trainer.total_training_steps=null", "trainer.total_epochs=2", "data.train_max_samples=20"]
    assert len(run(start, tmp_path, *overrides).steps) == 4


def test_only_the_critic_learns_during_its_warm_up(start: Path, tmp_path: Path) -> None:
    longer = reward(tmp_path, "return float(len(solution_str))")
    report = run(start, tmp_path / "run", "trainer.critic_warmup=2", longer)
    assert [step["actor/param_change"] > 0 for step in report.steps] == [False, False, True]
    assert all(step["critic/grad_norm"] > 0 for step in report.steps)


def test_an_adaptive_weight_of_the_kl_in_the_reward_moves(start: Path, tmp_path: Path) -> None:
    overrides = [
        "algorithm.use_kl_in_reward=true",
        "algorithm.kl_ctrl={type: adaptive, kl_coef: 0.1, target_kl: 1.0e-6, horizon: 100}",
        reward(tmp_path, "return float(len(solution_str))"),
    ]
    report = run(start, tmp_path / "run", *overrides)
    coefficients = [step["critic/kl_coeff"] for step in report.steps]
    assert coefficients[0] == 0.1
    assert coefficients[2] > coefficients[1]
    assert report.steps[2]["critic/rewards/mean"] != report.steps[2]["critic/score/mean"]


class StopAfter(Silent):
    """Asks the run to stop when the given step is done."""

    def __init__(self, step: int, stop: StopRequest) -> None:
        self.at, self.request = step, stop

    def step(self, step: int, total: int, metrics: Mapping[str, float]) -> None:
        self.request.requested = step == self.at


def test_a_stop_ends_after_the_step_in_flight_with_everything_written(start: Path, tmp_path: Path) -> None:
    stop = StopRequest()
    report = run(start, tmp_path, talk=StopAfter(1, stop), stop=stop)
    assert report.interrupted
    assert len(report.steps) == len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 2
    assert report.score_after is None
    assert (tmp_path / "curves.png").exists()
    assert sums.score_folder(report.export) >= 0


def test_a_reward_that_fails_later_leaves_the_steps_before_it(start: Path, tmp_path: Path) -> None:
    counting = "compute_score.calls = getattr(compute_score, 'calls', 0) + 1\n    return 1 / (compute_score.calls < 30)"
    with pytest.raises(DataError, match=r"reward\.py:compute_score raised ZeroDivisionError.*sample 3"):
        run(start, tmp_path / "run", reward(tmp_path, counting))
    (line,) = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert json.loads(line)["step"] == 0
    assert (tmp_path / "run" / "curves.png").exists()


def test_bad_input_is_found_before_the_run_folder_is_made(start: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_text('{"prompt": \n')
    for override in (f"data.train_files={tmp_path / 'bad.jsonl'}", "custom_reward_function.path=absent.py"):
        with pytest.raises(DataError):
            run(start, tmp_path / "run", override)
    assert not (tmp_path / "run").exists()


def test_tokens_that_the_model_does_not_have_are_refused(start: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"token 13.*only 5 tokens"):
        run(start, tmp_path / "run", backend=TorchBackend(5))


class OtherReference(TorchBackend):
    """Its reference is not the actor's twin."""

    def reference(self, folder: Path) -> TorchModel:
        model = super().reference(folder)
        with torch.no_grad():
            next(model.module.parameters()).add_(1e-3)
        return model


def test_a_reference_that_differs_before_any_update_is_refused(start: Path, tmp_path: Path) -> None:
    with pytest.raises(ReferenceMismatch, match="expected exactly 0"):
        run(start, tmp_path / "run", backend=OtherReference(TOKENS))


def test_progress_is_one_line_a_step_on_stderr(start: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(start, tmp_path, talk=Lines())
    output = capsys.readouterr()
    assert output.out == ""
    lines = [line for line in output.err.splitlines() if line.startswith("step ")]
    assert len(lines) == 3
    assert "step 2/3" in lines[1]
    assert "score" in lines[1]


def test_too_small_a_batch_for_the_ranks_never_reaches_the_engine(start: Path) -> None:
    with pytest.raises(ConfigError, match="fewer than the 32 data-parallel ranks"):
        config_from(values(start), world_size=32)
