"""The PPO loop: sample, score, learn, hand the new weights to the rollout engine; and what surrounds it.

Every rank runs this code with the same data. Files are read and written, and responses scored, on rank 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from mcore_compat.contracts import Sampling, TrainingBackend
from mcore_compat.errors import DataError, ReferenceMismatch
from mcore_compat.rl.config import Config
from mcore_compat.rl.config_resolve import (
    actor_optimizer,
    critic_optimizer,
    ppo_settings,
    responses_per_rank,
    train_sampling,
    validation_sampling,
)
from mcore_compat.rl.data import Prompt, batches, steps_per_epoch
from mcore_compat.rl.experience import make_experience, pack
from mcore_compat.rl.interrupt import StopRequest, peer_loss
from mcore_compat.rl.judge import Judge
from mcore_compat.rl.kl import kl_controller
from mcore_compat.rl.metrics import Stopwatch, data_metrics, throughput
from mcore_compat.rl.progress import Talk
from mcore_compat.rl.report import Report
from mcore_compat.rl.resume import Progress
from mcore_compat.rl.rollout import HFRollout, generate_on_all
from mcore_compat.rl.run_folder import RunFolder
from mcore_compat.rl.update import ppo_update

if TYPE_CHECKING:
    from mcore_compat.contracts import Batch

VALIDATION_SCORE = "val/score/mean"
_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def train(config: Config, backend: TrainingBackend, folder: Path, *, talk: Talk, stop: StopRequest) -> Report:
    """Run PPO.

    Args:
        config: All settings, checked.
        backend: The training engine.
        folder: Run folder; see :func:`mcore_compat.rl.run_folder.choose_folder`.
        talk: Where progress goes, on this rank.
        stop: Looked at on rank 0 after every step.

    Raises:
        DataError: Prompts, tokenizer or reward function cannot be used.
        WeightsError: A model folder cannot be read.
        ReferenceMismatch: Actor and reference differ before the first update.
        NumericalError: A loss, gradient or KL is not finite.
        CheckpointError: A checkpoint cannot be written, or the run cannot go on from one.
        PeerLost: Another rank is gone.
    """
    with peer_loss():
        return Trainer(config, backend, talk).run(folder, stop)


class Trainer:
    """Models, prompts and rollout engine of a run.

    Args:
        config: All settings, checked.
        backend: The training engine.
        talk: Where progress goes, on this rank.
    """

    def __init__(self, config: Config, backend: TrainingBackend, talk: Talk) -> None:
        self._config, self._backend, self._talk = config, backend, talk
        self._judge = Judge(config)
        self._prompts = backend.on_rank_zero(self._judge.prepare)
        if self._prompts.dropped:
            talk.say(f"{self._prompts.dropped} prompts exceed data.max_prompt_length and are left out")
        self._total = config.trainer.total_training_steps or (
            config.trainer.total_epochs * steps_per_epoch(config, self._prompts)
        )
        _, copies = backend.data_parallel
        self._settings = ppo_settings(config, total_steps=self._total, data_parallel_size=copies)
        self._kl_control = kl_controller(self._settings.algorithm.kl_ctrl)
        self._order = torch.Generator().manual_seed(config.actor_rollout_ref.actor.data_loader_seed)
        self._load_models(Path(str(config.actor_rollout_ref.model.path)).expanduser())
        models = {"actor": self._actor, "critic": self._critic}
        self._progress = Progress(config.trainer, backend, models, self._order, self._kl_control)

    def run(self, folder: Path, stop: StopRequest) -> Report:
        """Validate, train, validate, export; or go on from a checkpoint."""
        record, progress = RunFolder(folder, self._config), self._progress
        if progress.restore(folder):
            self._engine.load_weights(self._actor.stream())
            self._talk.say(f"going on after step {progress.step} of {self._total}")
        steps = self._backend.on_rank_zero(lambda: record.open(progress.step))
        self._talk.say(f"run folder: {folder}")
        try:
            if progress.step == 0 and self._config.trainer.val_before_train:
                progress.score_before = self.validate()
            interrupted = self._train(steps, record, stop)
            self._actor.save_hf(folder / "actor")
        finally:
            # No exchange between ranks here: one of them may be gone.
            if self._backend.rank == 0:
                record.close(steps)
        before = progress.score_before
        after = steps[-1].get(VALIDATION_SCORE) if steps else before
        return Report(self._backend.release, steps, before, after, folder / "actor", folder, interrupted)

    def validate(self) -> float:
        """Return the mean score of the validation prompts."""
        prompts = self._prompts.validation
        seed = self._config.actor_rollout_ref.rollout.seed
        keys = [_key(seed, stream=1, step=0, row=row) for row in range(len(prompts))]
        responses = self._generate(prompts, validation_sampling(self._config), keys)
        scores = self._backend.on_rank_zero(lambda: self._judge.scores(prompts, responses))
        return sum(scores) / len(scores)

    def _train(self, steps: list[dict[str, float]], record: RunFolder, stop: StopRequest) -> bool:
        """Do all steps; whether a signal ended them early."""
        numbered = zip(range(self._total), batches(self._config, self._prompts), strict=False)
        for step, batch in islice(numbered, self._progress.step, None):
            metrics = self._step(step, batch)
            steps.append(metrics)
            if "console" in self._config.trainer.logger:
                self._talk.step(step, self._total, metrics)
            self._backend.on_rank_zero(partial(record.add_step, step, metrics))
            stopped = self._backend.on_rank_zero(lambda: stop.requested)
            self._progress.done(step, record.path, last=stopped or step + 1 == self._total)
            if stopped:
                self._talk.say(f"stopped after step {step + 1} of {self._total}")
                return True
        return False

    def _step(self, step: int, batch: Sequence[Prompt]) -> dict[str, float]:
        watch = Stopwatch()
        with watch("step"):
            experience = self._experience(step, batch, watch)
            metrics = data_metrics(
                experience,
                max_prompt_length=self._config.data.max_prompt_length,
                max_response_length=self._config.data.max_response_length,
            )
            metrics |= {"critic/kl_coeff": self._kl_control.coef} | self._update(step, experience, watch)
            self._kl_control.update(metrics["critic/kl"], len(experience["tokens"]))
            if self._is_validation_due(step):
                with watch("testing"):
                    metrics[VALIDATION_SCORE] = self.validate()
        timings = watch.metrics()
        return metrics | timings | throughput(experience, timings, _world_size())

    def _experience(self, step: int, batch: Sequence[Prompt], watch: Stopwatch) -> dict[str, torch.Tensor]:
        """Sample and score responses and evaluate them with all models."""
        rollout = self._config.actor_rollout_ref.rollout
        prompts = [prompt for prompt in batch for _ in range(rollout.n)]
        keys = [_key(rollout.seed, stream=0, step=step, row=row) for row in range(len(prompts))]
        with watch("gen"):
            responses = self._generate(prompts, train_sampling(self._config), keys)
        with watch("reward"):
            scores = self._backend.on_rank_zero(lambda: self._judge.scores(prompts, responses))
        experience = make_experience(
            self._actor,
            self._critic,
            self._reference,
            self._pack(prompts, responses),
            torch.tensor(scores, dtype=torch.float32),
            self._settings,
            vocab=self._backend.vocab,
            kl_coef=self._kl_control.coef,
            stopwatch=watch,
        )
        if step == 0:
            _require_equal_policies(experience)
        return experience

    def _update(self, step: int, experience: Batch, watch: Stopwatch) -> dict[str, float]:
        metrics = ppo_update(
            self._actor,
            self._critic,
            experience,
            self._settings,
            self._order,
            vocab=self._backend.vocab,
            step=step,
            stopwatch=watch,
        )
        with watch("update_weights"):
            self._engine.load_weights(self._actor.stream())
        return metrics | {"actor/param_change": self._engine.last_change}

    def _generate(self, prompts: Sequence[Prompt], sampling: Sampling, keys: Sequence[int]) -> list[list[int]]:
        tokens = [prompt.tokens for prompt in prompts]
        return generate_on_all(self._backend, self._engine, tokens, sampling, keys)

    def _pack(self, prompts: Sequence[Prompt], responses: Sequence[Sequence[int]]) -> dict[str, torch.Tensor]:
        return pack(
            [prompt.tokens for prompt in prompts],
            responses,
            width=self._config.data.max_prompt_length + self._config.data.max_response_length,
            pad_token_id=self._prompts.pad_id,
            device=self._backend.device,
        )

    def _is_validation_due(self, step: int) -> bool:
        every = self._config.trainer.test_freq
        return step + 1 == self._total or (every > 0 and (step + 1) % every == 0)

    def _load_models(self, folder: Path) -> None:
        config, backend = self._config, self._backend
        self._actor = backend.actor(folder, actor_optimizer(config))
        critic_folder = Path(config.critic.model.path or folder).expanduser()
        self._critic = backend.critic(critic_folder, critic_optimizer(config))
        self._reference = backend.reference(folder)
        self._refuse_unknown_tokens(folder)
        rollout = config.actor_rollout_ref.rollout
        self._engine = HFRollout.from_folder(
            folder,
            prompt_width=config.data.max_prompt_length,
            pad_token_id=self._prompts.pad_id,
            eos_token_ids=[self._prompts.eos_id],
            batch_size=rollout.micro_batch_size or responses_per_rank(config, backend.data_parallel[1]),
            device=backend.device,
            dtype=_DTYPES[config.trainer.precision],
        )
        self._engine.load_weights(self._actor.stream())

    def _refuse_unknown_tokens(self, folder: Path) -> None:
        largest = max(max(prompt.tokens) for prompt in (*self._prompts.train, *self._prompts.validation))
        if largest >= self._backend.vocab.size:
            raise DataError(
                f"The tokenizer gives token {largest}, but the model in {folder} "
                f"has only {self._backend.vocab.size} tokens",
                hint="use the tokenizer that belongs to the model",
            )


def _require_equal_policies(experience: Batch) -> None:
    mask = experience["response_mask"]
    distance = (experience["old_logprobs"] - experience["ref_logprobs"])[mask].abs().max().item()
    if distance:
        raise ReferenceMismatch(
            f"Before the first update actor and reference differ by up to {distance:g} nats in a token's "
            "log-probability; expected exactly 0",
            hint="both must have the same weights, precision and kernels, and no active dropout",
        )


def _key(seed: int, *, stream: int, step: int, row: int) -> int:
    """A number of its own for every response of a run: training is stream 0, validation 1."""
    return (((seed << 1) + stream) << 48) + (step << 24) + row


def _world_size() -> int:
    return torch.distributed.get_world_size() if torch.distributed.is_initialized() else 1
