from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from mcore_compat.contracts import Sampling
from mcore_compat.errors import ConfigError
from mcore_compat.rl.config import Config
from mcore_compat.rl.config_load import config_from, known_keys, load_config, to_yaml
from mcore_compat.rl.config_resolve import (
    actor_optimizer,
    layout,
    ppo_settings,
    train_sampling,
    validation_sampling,
)

MEGATRON = "actor_rollout_ref.actor.megatron"
SMALL: Mapping[str, Any] = {
    "data": {"train_files": "prompts.jsonl", "train_batch_size": 8},
    "actor_rollout_ref": {"model": {"path": "model"}, "actor": {"ppo_mini_batch_size": 4}},
}


def small(*overrides: str, world_size: int = 1) -> Config:
    return config_from(SMALL, overrides, world_size=world_size)


def message(*overrides: str, world_size: int = 1) -> str:
    with pytest.raises(ConfigError) as caught:
        small(*overrides, world_size=world_size)
    return str(caught.value)


def test_a_later_value_wins_over_an_earlier_one_and_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(
        "data: {train_files: a.jsonl, train_batch_size: 8}\n"
        "actor_rollout_ref: {model: {path: m}, actor: {ppo_mini_batch_size: 8, optim: {lr: 1e-5}}}\n"
    )
    config = load_config(file, ["actor_rollout_ref.actor.optim.lr=1e-3", "data.seed=2", "data.seed=3"])
    assert config.actor_rollout_ref.actor.optim.lr == 1e-3
    assert config.data.seed == 3
    assert config.data.train_files == ["a.jsonl"]
    assert load_config(file).actor_rollout_ref.actor.optim.lr == 1e-5


def test_the_written_settings_read_back_equal(tmp_path: Path) -> None:
    config = small("critic.optim.betas=[0.8,0.95]", "data.val_files=[x.jsonl,y.parquet]", "trainer.precision=bf16")
    (tmp_path / "config.yaml").write_text(to_yaml(config))
    assert load_config(tmp_path / "config.yaml") == config


@pytest.mark.parametrize(
    ("wrong", "nearest"),
    [
        ("actor_rollout_ref.actor.ppo_mini_batchsize", "actor_rollout_ref.actor.ppo_mini_batch_size"),
        ("actor_rollout_ref.actor.lr", "actor_rollout_ref.actor.optim.lr"),
        ("critic.lr", "critic.optim.lr"),
        ("algorithm.kl_coef", "algorithm.kl_ctrl.kl_coef"),
        ("trainer.total_training_step", "trainer.total_training_steps"),
        ("trainer.total_steps", "trainer.total_training_steps"),
        ("data.batch_size", "data.train_batch_size"),
        ("trainer.train_batch_size", "data.train_batch_size"),
        ("actor_rollout_ref.actor.megatron.tensor_parallel_size", f"{MEGATRON}.tensor_model_parallel_size"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest_known_one(wrong: str, nearest: str) -> None:
    text = message(f"{wrong}=1")
    assert f"Unknown setting '{wrong}'" in text
    assert f"did you mean '{nearest}'?" in text


def test_an_unknown_group_is_refused_with_the_nearest_group() -> None:
    assert "did you mean 'trainer'?" in message("trainr.device=cpu")


def test_known_keys_are_those_of_the_written_settings() -> None:
    def paths(values: Mapping[str, Any], prefix: str = "") -> set[str]:
        inner = (paths(v, f"{prefix}{k}.") if isinstance(v, dict) else {prefix + k} for k, v in values.items())
        return set().union(*inner)

    assert paths(dataclasses.asdict(Config())) == set(known_keys())


@pytest.mark.parametrize(
    ("override", "named"),
    [
        ("data.train_batch_size=many", "data.train_batch_size"),
        ("trainer.precision=fp8", "trainer.precision"),
        ("algorithm.gamma=null", "algorithm.gamma"),
        ("actor_rollout_ref.actor=3", "actor_rollout_ref.actor"),
        ("data.shuffle=perhaps", "data.shuffle"),
        ("data.train_files={a: b}", "data.train_files"),
        ("critic.optim.betas=[0.9]", "critic.optim.betas"),
    ],
)
def test_a_value_of_the_wrong_type_names_its_key(override: str, named: str) -> None:
    assert f"'{named}'" in message(override)


@pytest.mark.parametrize(
    ("overrides", "world_size", "words"),
    [
        (["data.train_files=[]"], 1, ["data.train_files", "not set"]),
        (["actor_rollout_ref.model.path=null"], 1, ["actor_rollout_ref.model.path", "not set"]),
        (
            ["actor_rollout_ref.actor.ppo_mini_batch_size=3"],
            1,
            ["ppo_mini_batch_size=3", "train_batch_size=8"],
        ),
        (["actor_rollout_ref.actor.ppo_mini_batch_size=16"], 1, ["ppo_mini_batch_size=16", "8"]),
        (["critic.ppo_mini_batch_size=5"], 1, ["critic.ppo_mini_batch_size=5"]),
        (
            ["actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=3"],
            1,
            ["ppo_micro_batch_size_per_gpu=3", "4"],
        ),
        ([], 16, ["train_batch_size=8", "16 data-parallel ranks"]),
        ([], 8, ["ppo_mini_batch_size=4", "8 data-parallel ranks"]),
        (["actor_rollout_ref.actor.megatron.tensor_model_parallel_size=2"], 3, ["3 ranks", "tensor 2"]),
        (["data.max_response_length=0"], 1, ["data.max_response_length is 0"]),
        (["algorithm.lam=1.5"], 1, ["algorithm.lam is 1.5"]),
        (["actor_rollout_ref.actor.optim.lr=-1"], 1, ["optim.lr is -1"]),
        (["actor_rollout_ref.rollout.temperature=0"], 1, ["temperature is 0", "do_sample=false"]),
        (["trainer.precision=fp16", "trainer.device=cpu"], 1, ["fp16"]),
        (
            ["actor_rollout_ref.actor.megatron.override_ddp_config.overlap_param_gather=true"],
            1,
            ["overlap_param_gather", "overlap_grad_reduce=true"],
        ),
    ],
)
def test_values_that_do_not_fit_together_are_named(overrides: list[str], world_size: int, words: list[str]) -> None:
    text = message(*overrides, world_size=world_size)
    assert all(word in text for word in words), text


@pytest.mark.parametrize("override", ["data.seed", "=3", "+data.seed=3", "--steps=4"])
def test_an_override_that_is_no_key_and_value_is_quoted(override: str) -> None:
    assert repr(override) in message(override)


def test_a_missing_broken_or_empty_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "broken.yaml").write_text("data: [1, 2\n")
    (tmp_path / "list.yaml").write_text("- 1\n")
    for name in ("absent.yaml", "broken.yaml", "list.yaml"):
        with pytest.raises(ConfigError, match=name):
            load_config(tmp_path / name)


def test_mini_batches_count_prompts_in_the_settings_and_responses_in_the_algorithm() -> None:
    settings = ppo_settings(small("actor_rollout_ref.rollout.n=3"), total_steps=10, data_parallel_size=2)
    assert settings.actor.ppo_mini_batch_size == settings.critic.ppo_mini_batch_size == 12
    assert settings.actor.ppo_micro_batch_size_per_gpu == 6
    assert settings.log_prob_micro_batch_size_per_gpu == 12


def test_the_critic_takes_over_what_it_does_not_set() -> None:
    config = small("actor_rollout_ref.actor.ppo_epochs=3", "critic.ppo_mini_batch_size=8")
    critic = ppo_settings(config, total_steps=1, data_parallel_size=1).critic
    assert (critic.ppo_epochs, critic.ppo_mini_batch_size) == (3, 8)


def test_warm_up_and_decay_follow_the_number_of_steps() -> None:
    config = small(
        "actor_rollout_ref.actor.optim.lr=1e-2",
        "actor_rollout_ref.actor.optim.lr_warmup_steps_ratio=0.25",
        "actor_rollout_ref.actor.optim.min_lr_ratio=0.1",
        "critic.optim.lr_warmup_steps=3",
        "critic.optim.total_training_steps=7",
    )
    settings = ppo_settings(config, total_steps=40, data_parallel_size=1)
    assert (settings.actor.optim.lr_warmup_steps, settings.actor.optim.lr_decay_steps) == (10, 40)
    assert settings.actor.optim.min_lr == pytest.approx(1e-3)
    assert (settings.critic.optim.lr_warmup_steps, settings.critic.optim.lr_decay_steps) == (3, 7)


def test_training_samples_and_validation_is_greedy_unless_asked() -> None:
    config = small("actor_rollout_ref.rollout.temperature=0.7", "data.max_response_length=5")
    assert train_sampling(config) == Sampling(5, 0.7, 0, 1.0)
    assert validation_sampling(config) == Sampling(5, 0.0)
    drawn = small("actor_rollout_ref.rollout.val_kwargs.do_sample=true", "data.max_response_length=5")
    assert validation_sampling(drawn) == Sampling(5, 1.0, 0, 1.0)


def test_layout_and_optimizer_carry_the_settings_over() -> None:
    megatron = "actor_rollout_ref.actor.megatron"
    config = small(
        f"{megatron}.tensor_model_parallel_size=2",
        f"{megatron}.pipeline_model_parallel_size=2",
        "actor_rollout_ref.actor.grad_clip=0.5",
        world_size=4,
    )
    assert (layout(config).tp, layout(config).pp) == (2, 2)
    assert actor_optimizer(config).clip_grad == 0.5
