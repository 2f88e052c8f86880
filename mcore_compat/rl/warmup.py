"""Supervised training of a policy on example answers, through the same engine that PPO uses."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from mcore_compat.contracts import LossFunction, LossTerm, TrainableModel, VocabShard
from mcore_compat.rl.advantages import masked_sum
from mcore_compat.rl.logprobs import logprobs_and_entropy
from mcore_compat.rl.schedule import learning_rate
from mcore_compat.rl.settings import ScheduleSettings

if TYPE_CHECKING:
    import torch

    from mcore_compat.contracts import Batch


def cross_entropy(vocab: VocabShard) -> LossFunction:
    """Return the loss -log p(target), summed over response tokens; denominator: number of response tokens.

    The returned function takes logits and a microbatch with ``targets`` and ``response_mask``. It consumes
    the logits.
    """

    def loss(logits: torch.Tensor, batch: Batch) -> LossTerm:
        logprobs, _ = logprobs_and_entropy(logits, batch["targets"], vocab, entropy=False, reuse_logits=True)
        return LossTerm(-masked_sum(logprobs, batch["response_mask"]), batch["response_mask"].sum())

    return loss


def warm_up(
    model: TrainableModel,
    examples: Callable[[int], Batch],
    schedule: ScheduleSettings,
    vocab: VocabShard,
    *,
    steps: int,
    micro_batch_size: int,
    after_step: Callable[[int, float], None],
) -> None:
    """Train on examples.

    Args:
        model: The policy.
        examples: Step number to a batch as ``experience.pack`` lays it out.
        schedule: Learning rate over the steps.
        vocab: The vocabulary slice of this rank's logits.
        steps: Number of optimizer steps.
        micro_batch_size: Rows per forward pass of one data-parallel rank.
        after_step: Called with the step number and its loss.
    """
    loss = cross_entropy(vocab)
    for step in range(steps):
        model.set_lr(learning_rate(step, schedule))
        after_step(step, model.update(examples(step), micro_batch_size, loss).loss)
