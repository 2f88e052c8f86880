"""The losses of PPO over one microbatch. Each is a sum over response tokens together with their number.

The backend divides the sums by the counts of the whole mini-batch (all microbatches and data-parallel ranks),
so every response token weighs the same, however the mini-batch was cut.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch

from mcore_compat.contracts import LossFunction, LossTerm, VocabShard
from mcore_compat.rl.advantages import masked_sum
from mcore_compat.rl.kl import kl_estimate
from mcore_compat.rl.logprobs import logprobs_and_entropy
from mcore_compat.rl.settings import ActorSettings, CriticSettings

if TYPE_CHECKING:
    from mcore_compat.contracts import Batch

Metrics = Mapping[str, tuple[torch.Tensor, torch.Tensor]]


def policy_loss(
    logprobs: torch.Tensor,
    old_logprobs: torch.Tensor,
    advantages: torch.Tensor,
    mask: torch.Tensor,
    clip_ratio: float,
) -> LossTerm:
    """Clipped surrogate loss (Schulman et al. 2017, eq. 7), negated so that less is better.

    -min(ratio · A, clip(ratio, 1 - clip_ratio, 1 + clip_ratio) · A) with ratio = exp(logprobs -
    old_logprobs).

    Args:
        logprobs: [R, T] with gradient.
        old_logprobs: [R, T] of the policy that sampled.
        advantages: [R, T].
        mask: [R, T].
        clip_ratio: PPO's epsilon.

    Returns:
        Reduction: sum over response tokens. Denominator: number of response tokens. Metrics over the same
            tokens:
        ``pg_loss``; ``pg_clipfrac``, the share where the clipped term is the larger loss; ``ppo_kl``, the
        mean of old_logprobs - logprobs.
    """
    difference = torch.where(mask, logprobs - old_logprobs, 0.0)
    ratio = difference.exp()
    plain = -advantages * ratio
    clipped = -advantages * ratio.clamp(1.0 - clip_ratio, 1.0 + clip_ratio)
    total, count = masked_sum(torch.maximum(plain, clipped), mask), mask.sum()
    metrics = {
        "pg_loss": (total.detach(), count),
        "pg_clipfrac": (masked_sum((clipped > plain).float(), mask), count),
        "ppo_kl": (-difference.detach().sum(), count),
    }
    return LossTerm(total, count, metrics)


def value_loss(
    values: torch.Tensor,
    old_values: torch.Tensor,
    returns: torch.Tensor,
    mask: torch.Tensor,
    cliprange_value: float,
) -> LossTerm:
    """Half the squared error of the value, or of the clipped value where that error is larger.

    Args:
        values: [R, T] with gradient.
        old_values: [R, T] of the critic before the update.
        returns: [R, T].
        mask: [R, T].
        cliprange_value: Largest distance from the old value.

    Returns:
        Reduction: sum over response tokens. Denominator: number of response tokens. Metrics over the same
            tokens:
        ``vf_loss``; ``vf_clipfrac``, the share where the clipped error is the larger; ``vpred_mean``.
    """
    # Before the squares: their gradient at a value that is not finite would be NaN times the mask's 0.
    values = torch.where(mask, values, 0.0)
    clipped = torch.clamp(values, old_values - cliprange_value, old_values + cliprange_value)
    error, clipped_error = (values - returns).square(), (clipped - returns).square()
    total, count = masked_sum(0.5 * torch.maximum(error, clipped_error), mask), mask.sum()
    metrics = {
        "vf_loss": (total.detach(), count),
        "vf_clipfrac": (masked_sum((clipped_error > error).float(), mask), count),
        "vpred_mean": (masked_sum(values.detach(), mask), count),
    }
    return LossTerm(total, count, metrics)


def actor_loss(settings: ActorSettings, vocab: VocabShard, temperature: float = 1.0) -> LossFunction:
    """The actor's loss: clipped surrogate - entropy_coeff · entropy + kl_loss_coef · KL to reference.

    The returned function takes logits and a microbatch with ``targets``, ``response_mask``, ``old_logprobs``,
    ``advantages`` and, with ``use_kl_loss``, ``ref_logprobs``. Reduction: sum over response tokens.
    Denominator: number of response tokens. Metrics: those of :func:`policy_loss`, ``entropy`` and, with
    ``use_kl_loss``, ``kl_loss``. It consumes the logits: their memory becomes their gradient.
    """

    def loss(logits: torch.Tensor, batch: Batch) -> LossTerm:
        mask = batch["response_mask"]
        logprobs, entropy = logprobs_and_entropy(
            logits, batch["targets"], vocab, temperature=temperature, reuse_logits=True
        )
        policy = policy_loss(logprobs, batch["old_logprobs"], batch["advantages"], mask, settings.clip_ratio)
        total, metrics = policy.sum, dict(policy.metrics)
        bonus = masked_sum(entropy, mask)
        metrics["entropy"] = (bonus.detach(), policy.count)
        if settings.entropy_coeff:
            total = total - settings.entropy_coeff * bonus
        if settings.use_kl_loss:
            penalty = kl_estimate(logprobs, batch["ref_logprobs"], mask, settings.kl_loss_type).sum()
            metrics["kl_loss"] = (penalty.detach(), policy.count)
            total = total + settings.kl_loss_coef * penalty
        return LossTerm(total, policy.count, metrics)

    return loss


def critic_loss(settings: CriticSettings) -> LossFunction:
    """The critic's loss: :func:`value_loss` with ``values``, ``returns``, ``response_mask`` of a batch."""

    def loss(values: torch.Tensor, batch: Batch) -> LossTerm:
        return value_loss(values, batch["values"], batch["returns"], batch["response_mask"], settings.cliprange_value)

    return loss
