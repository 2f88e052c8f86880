from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
import torch

from mcore_compat.contracts import LossFunction, OptimizerSettings, Sampling, StepResult, UpdateResult
from mcore_compat.errors import ConfigError, NumericalError
from mcore_compat.rl.experience import make_experience, pack
from mcore_compat.rl.metrics import Stopwatch, data_metrics, names
from mcore_compat.rl.rollout import HFRollout, generate_on_all
from mcore_compat.rl.settings import (
    ActorSettings,
    AlgorithmSettings,
    CriticSettings,
    PPOSettings,
    ScheduleSettings,
)
from mcore_compat.rl.update import ppo_update
from tests.rl.conftest import VOCAB
from tests.rl.torch_backend import TorchBackend, TorchModel

ROWS = 64
PROMPTS = [[1, 3 + row % 4] for row in range(ROWS)]


def settings(
    *, epochs: int = 1, mini: int = 32, micro: int = 32, lr: float = 3e-3, warmup: int = 0, **actor: object
) -> PPOSettings:
    sizes = {"ppo_epochs": epochs, "ppo_mini_batch_size": mini, "ppo_micro_batch_size_per_gpu": micro}
    return PPOSettings(
        actor=ActorSettings(**sizes, optim=ScheduleSettings(lr=lr), **actor),  # type: ignore[arg-type]
        critic=CriticSettings(**sizes, optim=ScheduleSettings(lr=lr)),  # type: ignore[arg-type]
        algorithm=AlgorithmSettings(lam=0.95),
        critic_warmup=warmup,
    )


class Run:
    """A bandit with a context: the first token of the response should repeat the prompt's last."""

    def __init__(self, folder: Path) -> None:
        self.backend = TorchBackend(VOCAB)
        optimizer = OptimizerSettings(lr=1.0, weight_decay=0.0)
        self.actor = self.backend.actor(folder, optimizer)
        self.critic = self.backend.critic(folder, optimizer)
        self.reference = self.backend.reference(folder)
        self.rollout = HFRollout.from_folder(folder, prompt_width=2, pad_token_id=0, eos_token_ids=[2])
        self.rollout.load_weights(self.actor.stream())

    def experience(
        self, config: PPOSettings, step: int = 0, stopwatch: Stopwatch | None = None
    ) -> dict[str, torch.Tensor]:
        keys = [1000 * step + row for row in range(ROWS)]
        responses = generate_on_all(self.backend, self.rollout, PROMPTS, Sampling(2), keys)
        scores = [float(r[0] == p[1]) for p, r in zip(PROMPTS, responses, strict=True)]
        return make_experience(
            self.actor,
            self.critic,
            self.reference,
            pack(PROMPTS, responses, width=4, pad_token_id=0),
            torch.tensor(scores),
            config,
            vocab=self.backend.vocab,
            kl_coef=0.0,
            stopwatch=stopwatch,
        )

    def update(
        self, config: PPOSettings, batch: Mapping[str, torch.Tensor], step: int = 0, seed: int = 0
    ) -> dict[str, float]:
        generator = torch.Generator().manual_seed(seed)
        return ppo_update(self.actor, self.critic, batch, config, generator, vocab=self.backend.vocab, step=step)

    def weights(self, model: TorchModel) -> torch.Tensor:
        return torch.cat([tensor.flatten() for _, tensor in model.stream()])


def test_reward_rises_and_kl_leaves_zero(tiny_folder: Path) -> None:
    run, config = Run(tiny_folder), settings(epochs=4, lr=1e-2)
    scores, kls = [], []
    for step in range(8):
        batch = run.experience(config, step)
        metrics = data_metrics(batch, max_prompt_length=2, max_response_length=2)
        scores.append(metrics["critic/score/mean"])
        kls.append(metrics["critic/kl"])
        run.update(config, batch, step)
        run.rollout.load_weights(run.actor.stream())
        assert run.rollout.last_change > 0
    assert kls[0] == 0.0
    assert min(kls[1:]) > 0
    assert scores[-1] > scores[0] + 0.5, scores


def test_first_update_has_ratio_one(tiny_folder: Path) -> None:
    run, config = Run(tiny_folder), settings(mini=ROWS)
    metrics = run.update(config, run.experience(config))
    assert metrics["actor/ppo_kl"] == 0.0
    assert metrics["actor/pg_clipfrac"] == 0.0
    # With ratio 1 the loss is minus the mean advantage, which whitening made 0.
    assert metrics["actor/pg_loss"] == pytest.approx(0, abs=1e-6)
    assert metrics["actor/grad_norm"] > 0


def test_later_epochs_move_away_from_it(tiny_folder: Path) -> None:
    run, config = Run(tiny_folder), settings(mini=ROWS, epochs=2)
    assert run.update(config, run.experience(config))["actor/ppo_kl"] != 0.0


def test_the_cut_into_microbatches_does_not_matter(tiny_folder: Path) -> None:
    results = []
    for micro in (32, 13, 4):
        run, config = Run(tiny_folder), settings(epochs=2, micro=micro)
        metrics = run.update(config, run.experience(settings()))
        results.append((metrics, run.weights(run.actor), run.weights(run.critic)))
    for metrics, actor, critic in results[1:]:
        assert metrics == pytest.approx(results[0][0], rel=1e-4, abs=1e-6)
        assert (actor - results[0][1]).abs().max() < 1e-4
        assert (critic - results[0][2]).abs().max() < 1e-4


def test_same_generator_same_result_other_generator_other_result(tiny_folder: Path) -> None:
    outcomes = []
    for seed in (0, 0, 1):
        run, config = Run(tiny_folder), settings(epochs=2)
        run.update(config, run.experience(config), seed=seed)
        outcomes.append(run.weights(run.actor))
    assert torch.equal(outcomes[0], outcomes[1])
    assert not torch.equal(outcomes[0], outcomes[2])


def test_critic_warm_up_leaves_the_actor_alone(tiny_folder: Path) -> None:
    run, config = Run(tiny_folder), settings(warmup=2)
    before, critic = run.weights(run.actor), run.weights(run.critic)
    batch = run.experience(config)
    metrics = run.update(config, batch, step=1)
    assert not any(name.startswith("actor/") for name in metrics)
    assert torch.equal(run.weights(run.actor), before)
    assert not torch.equal(run.weights(run.critic), critic)
    assert "actor/pg_loss" in run.update(config, batch, step=2)
    assert not torch.equal(run.weights(run.actor), before)


def test_schedule_sets_the_rate_of_the_step(tiny_folder: Path) -> None:
    run = Run(tiny_folder)
    warm = ScheduleSettings(lr=1e-2, lr_warmup_steps=10)
    config = PPOSettings(
        actor=ActorSettings(ppo_mini_batch_size=ROWS, optim=warm),
        critic=CriticSettings(ppo_mini_batch_size=ROWS, optim=ScheduleSettings(lr=2e-3)),
    )
    before = run.weights(run.actor)
    metrics = run.update(config, run.experience(config), step=0)
    assert metrics["actor/lr"] == 0.0
    assert metrics["critic/lr"] == 2e-3
    assert torch.equal(run.weights(run.actor), before)
    assert run.update(config, run.experience(config), step=3)["actor/lr"] == pytest.approx(3e-3)


def test_kl_loss_holds_the_policy_back(tiny_folder: Path) -> None:
    changes = []
    for coefficient in (0.0, 10.0):
        run = Run(tiny_folder)
        config = settings(epochs=8, lr=1e-2, use_kl_loss=True, kl_loss_coef=coefficient)
        metrics = run.update(config, run.experience(config))
        assert metrics["actor/kl_coef"] == coefficient
        changes.append(metrics["actor/kl_loss"])
    assert changes[1] < 0.5 * changes[0]


def test_entropy_bonus_keeps_entropy_up(tiny_folder: Path) -> None:
    entropies = []
    for coefficient in (-0.5, 0.5):
        run = Run(tiny_folder)
        config = settings(epochs=6, entropy_coeff=coefficient)
        entropies.append(run.update(config, run.experience(config))["actor/entropy"])
    assert entropies[1] > entropies[0]


def test_every_metric_is_in_the_table(tiny_folder: Path) -> None:
    run, config, watch = Run(tiny_folder), settings(use_kl_loss=True), Stopwatch()
    batch = run.experience(config, stopwatch=watch)
    found = {
        **run.update(config, batch),
        **data_metrics(batch, max_prompt_length=2, max_response_length=2),
        **watch.metrics(),
    }
    assert set(found) <= names()
    assert set(watch.seconds) == {"old_log_prob", "ref", "values", "adv"}


def test_experience_that_mini_batches_do_not_divide(tiny_folder: Path) -> None:
    run = Run(tiny_folder)
    with pytest.raises(ConfigError, match=r"64 rows of experience are not a multiple .* 24 rows"):
        run.update(settings(mini=24), run.experience(settings()))


@pytest.mark.parametrize(("loss", "norm", "message"), [
    (float("nan"), 1.0, "critic: loss is nan in optimizer step 0 of PPO step 3"),
    (1.0, float("inf"), "critic: gradient norm is inf"),
])  # fmt: skip
def test_what_is_not_finite_is_an_error(tiny_folder: Path, loss: float, norm: float, message: str) -> None:
    run = Run(tiny_folder)
    run.critic = Reporting(run.critic, UpdateResult(StepResult(True, norm, None), loss, {}))
    with pytest.raises(NumericalError, match=message):
        run.update(settings(), run.experience(settings()), step=3)


def test_a_step_that_loss_scaling_skipped_is_not(tiny_folder: Path) -> None:
    run = Run(tiny_folder)
    run.critic = Reporting(run.critic, UpdateResult(StepResult(False, None, None), 1.0, {"vf_loss": 1.0}))
    metrics = run.update(settings(), run.experience(settings()))
    assert metrics["critic/vf_loss"] == 1.0
    assert "critic/grad_norm" not in metrics


class Reporting(TorchModel):
    """Reports what it is told to, as an engine would after an overflow."""

    def __init__(self, model: TorchModel, result: UpdateResult) -> None:
        self.__dict__ = {**vars(model), "result": result}

    def update(self, batch: Mapping[str, torch.Tensor], micro_batch_size: int, loss: LossFunction) -> UpdateResult:
        return self.result
