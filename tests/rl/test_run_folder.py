from __future__ import annotations

import json
from pathlib import Path

import pytest

from mcore_compat.errors import ConfigError
from mcore_compat.rl.config import Config
from mcore_compat.rl.config_load import config_from, load_config
from mcore_compat.rl.run_folder import RunFolder, choose_folder, write_whole

STEPS = [{"critic/score/mean": 0.1 * step, "critic/kl": 0.0, "actor/lr": 1e-3} for step in range(3)]


@pytest.fixture
def config() -> Config:
    values = {
        "data": {"train_files": "p.jsonl", "train_batch_size": 1},
        "actor_rollout_ref": {"model": {"path": "m"}, "actor": {"ppo_mini_batch_size": 1}},
    }
    return config_from(values)


def written(folder: Path, config: Config) -> RunFolder:
    record = RunFolder(folder, config)
    record.open()
    for step, metrics in enumerate(STEPS):
        record.add_step(step, metrics)
    record.close(STEPS)
    return record


def test_a_run_leaves_settings_metrics_events_and_curves(tmp_path: Path, config: Config) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    written(tmp_path, config)
    assert load_config(tmp_path / "config.yaml") == config
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert lines == [{"step": step, **metrics} for step, metrics in enumerate(STEPS)]
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload().Scalars("critic/score/mean")
    assert [event.step for event in events] == [0, 1, 2]
    assert [event.value for event in events] == pytest.approx([0.0, 0.1, 0.2])
    assert not list(tmp_path.glob(".*"))


def test_each_step_is_on_disk_when_it_is_added(tmp_path: Path, config: Config) -> None:
    record = RunFolder(tmp_path, config)
    record.open()
    record.add_step(0, STEPS[0])
    assert (tmp_path / "metrics.jsonl").read_text().endswith("}\n")


def test_tensorboard_can_be_left_out(tmp_path: Path, config: Config) -> None:
    quiet = config_from({**_as_values(config), "trainer": {"logger": []}})
    written(tmp_path, quiet)
    assert not (tmp_path / "tensorboard").exists()


def test_a_run_that_did_no_step_draws_nothing(tmp_path: Path, config: Config) -> None:
    record = RunFolder(tmp_path, config)
    record.open()
    record.close([])
    assert [item.name for item in tmp_path.iterdir()] == ["config.yaml"]


def taken(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "metrics.jsonl").write_text("{}\n")


def test_a_folder_with_results_is_refused_and_the_next_free_one_named(tmp_path: Path) -> None:
    taken(tmp_path / "run")
    taken(tmp_path / "run-2")
    with pytest.raises(ConfigError, match=r"run-3"):
        choose_folder(str(tmp_path / "run"), "ppo")


def test_what_a_failed_start_left_is_used_again(tmp_path: Path, config: Config) -> None:
    RunFolder(tmp_path / "run", config).open()
    assert choose_folder(str(tmp_path / "run"), "ppo") == tmp_path / "run"


def test_without_a_wish_runs_are_numbered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    chosen = []
    for _ in range(3):
        chosen.append(choose_folder(None, "ppo"))
        taken(chosen[-1])
    assert chosen == [Path("runs/ppo"), Path("runs/ppo-2"), Path("runs/ppo-3")]


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path, config: Config) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="file"):
        RunFolder(tmp_path / "file" / "run", config).open()
    with pytest.raises(ConfigError, match="not empty"):
        choose_folder(str(tmp_path / "file"), "ppo")


def test_a_write_that_fails_leaves_the_old_file_and_no_temporary(tmp_path: Path) -> None:
    target = tmp_path / "data.txt"
    target.write_text("old")

    def half(file: Path) -> None:
        file.write_text("ne")
        raise RuntimeError("power cut")

    with pytest.raises(RuntimeError):
        write_whole(target, half)
    assert target.read_text() == "old"
    assert [item.name for item in tmp_path.iterdir()] == ["data.txt"]


def _as_values(config: Config) -> dict[str, object]:
    model, actor = config.actor_rollout_ref.model, config.actor_rollout_ref.actor
    return {
        "data": {"train_files": config.data.train_files, "train_batch_size": 1},
        "actor_rollout_ref": {
            "model": {"path": model.path},
            "actor": {"ppo_mini_batch_size": actor.ppo_mini_batch_size},
        },
    }
