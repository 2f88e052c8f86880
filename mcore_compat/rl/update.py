"""The whole PPO update: epochs × mini-batches × microbatches, critic first, then actor.

The experience is global and identical on every rank, and so is the order in which it is used; the model takes
care of rows that belong to other ranks. What is learned does therefore not depend on the layout.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import torch

from mcore_compat.contracts import LossFunction, TrainableModel, UpdateResult, VocabShard
from mcore_compat.errors import ConfigError, NumericalError
from mcore_compat.rl.losses import actor_loss, critic_loss
from mcore_compat.rl.metrics import Stopwatch
from mcore_compat.rl.schedule import learning_rate
from mcore_compat.rl.settings import ActorSettings, CriticSettings, PPOSettings

if TYPE_CHECKING:
    from mcore_compat.contracts import Batch


def ppo_update(
    actor: TrainableModel,
    critic: TrainableModel,
    experience: Batch,
    settings: PPOSettings,
    generator: torch.Generator,
    *,
    vocab: VocabShard,
    step: int = 0,
    stopwatch: Stopwatch | None = None,
) -> dict[str, float]:
    """Update critic and, after the critic's warm-up, actor on one batch (Schulman et al. 2017, alg. 1).

    Args:
        actor: Gets the clipped policy loss.
        critic: Gets the clipped value loss.
        experience: What :func:`mcore_compat.rl.experience.make_experience` returned; R rows.
        settings: Sizes, coefficients and learning rates.
        generator: CPU generator of the mini-batches, in the same state on every rank.
        vocab: The vocabulary slice of this rank's logits.
        step: Number of PPO steps done before; decides learning rates and the critic's warm-up.
        stopwatch: Takes the times of ``update_critic`` and ``update_actor``.

    Returns:
        Metrics under verl's names, ``actor/...`` and ``critic/...``: means over all optimizer steps made
        here. No ``actor/...`` while only the critic learns.

    Raises:
        NumericalError: A loss or gradient norm is not finite.
        ConfigError: R is not a multiple of a mini-batch.
    """
    watch = stopwatch or Stopwatch()
    with watch("update_critic"):
        metrics = _learn("critic", critic, critic_loss(settings.critic), experience, settings.critic, generator, step)
    if step >= settings.critic_warmup:
        loss = actor_loss(settings.actor, vocab, settings.temperature)
        with watch("update_actor"):
            metrics |= _learn("actor", actor, loss, experience, settings.actor, generator, step)
        if settings.actor.use_kl_loss:
            metrics["actor/kl_coef"] = settings.actor.kl_loss_coef
    return metrics


def _learn(
    who: str,
    model: TrainableModel,
    loss: LossFunction,
    experience: Batch,
    settings: ActorSettings | CriticSettings,
    generator: torch.Generator,
    step: int,
) -> dict[str, float]:
    rate = learning_rate(step, settings.optim)
    model.set_lr(rate)
    results: list[dict[str, float]] = []
    for rows in _mini_batches(who, len(experience["tokens"]), settings, generator):
        mini_batch = {name: tensor[rows.to(tensor.device)] for name, tensor in experience.items()}
        result = model.update(mini_batch, settings.ppo_micro_batch_size_per_gpu, loss)
        _check_finite(who, result, len(results), step)
        results.append(_reported(result))
    return {f"{who}/{name}": value for name, value in _means(results).items()} | {f"{who}/lr": rate}


def _mini_batches(
    who: str, rows: int, settings: ActorSettings | CriticSettings, generator: torch.Generator
) -> Iterator[torch.Tensor]:
    """Row indices of each optimizer step, all epochs one after the other."""
    size = settings.ppo_mini_batch_size
    if rows % size:
        raise ConfigError(f"{who}: {rows} rows of experience are not a multiple of ppo_mini_batch_size, {size} rows")
    for _ in range(settings.ppo_epochs):
        order = torch.randperm(rows, generator=generator) if settings.shuffle else torch.arange(rows)
        yield from torch.split(order, size)


def _check_finite(who: str, result: UpdateResult, number: int, step: int) -> None:
    # A step that fp16 loss scaling skipped has no norm; it is part of normal operation.
    found = {"loss": result.loss, "gradient norm": result.step.grad_norm if result.step.updated else None}
    for name, value in found.items():
        if value is not None and not math.isfinite(value):
            raise NumericalError(
                f"{who}: {name} is {value} in optimizer step {number} of PPO step {step}; expected it finite",
                hint="look at the metrics of the steps before; lower the learning rate or set grad_clip",
            )


def _reported(result: UpdateResult) -> dict[str, float]:
    norm = {} if result.step.grad_norm is None else {"grad_norm": float(result.step.grad_norm)}
    return {**result.metrics, **norm}


def _means(results: list[dict[str, float]]) -> Mapping[str, float]:
    names = dict.fromkeys(name for result in results for name in result)
    columns = {name: [result[name] for result in results if name in result] for name in names}
    return {name: math.fsum(column) / len(column) for name, column in columns.items()}
