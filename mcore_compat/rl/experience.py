"""From sampled responses to what PPO learns from.

Log-probabilities come from the actor itself, not from the rollout engine: the two may round differently, and
the ratio of the first update has to be exactly 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from mcore_compat.contracts import EvaluatedModel, VocabShard
from mcore_compat.errors import ConfigError, DataError, NumericalError
from mcore_compat.rl.advantages import gae, masked_whiten, token_level_rewards
from mcore_compat.rl.kl import kl_estimate
from mcore_compat.rl.logprobs import logprobs_and_entropy
from mcore_compat.rl.metrics import Stopwatch
from mcore_compat.rl.settings import AlgorithmSettings, PPOSettings

if TYPE_CHECKING:
    from mcore_compat.contracts import Batch


def pack(
    prompts: Sequence[Sequence[int]],
    responses: Sequence[Sequence[int]],
    *,
    width: int,
    pad_token_id: int,
    device: torch.device | str = "cpu",
) -> dict[str, torch.Tensor]:
    """Lay prompts and responses out as [prompt | response | padding].

    Args:
        prompts: Token ids of R prompts, none empty.
        responses: Token ids of their responses, none empty.
        width: T. A width that does not depend on the batch keeps results independent of it.
        pad_token_id: Fills the rest.
        device: Where the tensors are put.

    Returns:
        ``tokens`` and ``targets`` [R, T] int64 (``targets[:, t] = tokens[:, t + 1]``, 0 in the last column),
        ``response_mask`` [R, T] bool, ``prompt_lengths`` and ``response_lengths`` [R] int64.

    Raises:
        DataError: A prompt or response is empty, or a pair is longer than ``width``.
    """
    _check_rows(prompts, responses, width)
    rows = [[*prompt, *response] for prompt, response in zip(prompts, responses, strict=True)]
    padded = [row + [pad_token_id] * (width - len(row)) for row in rows]
    tokens = torch.tensor(padded, dtype=torch.int64, device=device)
    starts = torch.tensor([len(prompt) for prompt in prompts], dtype=torch.int64, device=device)
    lengths = torch.tensor([len(response) for response in responses], dtype=torch.int64, device=device)
    predicted = torch.arange(1, width + 1, device=device)
    mask = (predicted >= starts[:, None]) & (predicted < (starts + lengths)[:, None])
    targets = torch.nn.functional.pad(tokens[:, 1:], (0, 1))
    return {
        "tokens": tokens,
        "targets": targets,
        "response_mask": mask,
        "prompt_lengths": starts,
        "response_lengths": lengths,
    }


def _check_rows(prompts: Sequence[Sequence[int]], responses: Sequence[Sequence[int]], width: int) -> None:
    if len(prompts) != len(responses):
        raise DataError(f"{len(prompts)} prompts have {len(responses)} responses; expected one each")
    for row, (prompt, response) in enumerate(zip(prompts, responses, strict=True)):
        if not prompt or not response:
            raise DataError(f"row {row} has an empty {'response' if prompt else 'prompt'}; expected at least one token")
        if len(prompt) + len(response) > width:
            raise DataError(f"row {row} has {len(prompt)} + {len(response)} tokens, more than the width {width}")


def sequence_logprobs(
    model: EvaluatedModel,
    sequences: Batch,
    vocab: VocabShard,
    *,
    micro_batch_size: int,
    temperature: float = 1.0,
) -> torch.Tensor:
    """Log-probability of each target under the actor or the reference, [R, T] fp32.

    Args:
        model: Actor or reference.
        sequences: ``tokens`` and ``targets``, [R, T].
        vocab: The vocabulary slice of this rank's logits.
        micro_batch_size: Rows per forward pass of one data-parallel rank.
        temperature: Divides the logits.
    """

    def output(logits: torch.Tensor, batch: Batch) -> dict[str, torch.Tensor]:
        logprobs, _ = logprobs_and_entropy(logits, batch["targets"], vocab, temperature=temperature, entropy=False)
        return {"logprobs": logprobs}

    return model.evaluate(sequences, micro_batch_size, output)["logprobs"]


def sequence_values(critic: EvaluatedModel, sequences: Batch, *, micro_batch_size: int) -> torch.Tensor:
    """The critic's value before each target is drawn, [R, T] fp32."""

    def output(values: torch.Tensor, _: Batch) -> dict[str, torch.Tensor]:
        return {"values": values.float()}

    return critic.evaluate(sequences, micro_batch_size, output)["values"]


def make_experience(
    actor: EvaluatedModel,
    critic: EvaluatedModel,
    reference: EvaluatedModel | None,
    sequences: Batch,
    scores_R: torch.Tensor,
    settings: PPOSettings,
    *,
    vocab: VocabShard,
    kl_coef: float,
    stopwatch: Stopwatch | None = None,
) -> dict[str, torch.Tensor]:
    """Evaluate the responses with all models and turn scores into advantages.

    Args:
        actor: The policy that sampled them.
        critic: The value model.
        reference: ``None`` only where the KL is neither in the reward nor in the loss.
        sequences: What :func:`pack` returned.
        scores_R: One finite score per response.
        settings: The algorithm.
        vocab: The vocabulary slice of this rank's logits.
        kl_coef: Current weight of the KL in the reward.
        stopwatch: Takes the times of ``old_log_prob``, ``ref``, ``values`` and ``adv``.

    Returns:
        ``sequences`` and ``scores`` [R]; [R, T] fp32 ``old_logprobs``, with a reference ``ref_logprobs``,
        ``values`` and, 0 outside ``response_mask``, ``rewards``, ``advantages`` and ``returns``.

    Raises:
        NumericalError: A log-probability or value of a response token, a score or a KL term is not finite.
        ConfigError: A reference is needed and not there.
    """
    if reference is None and (settings.algorithm.use_kl_in_reward or settings.actor.use_kl_loss):
        raise ConfigError("the KL is in the reward or in the loss, but there is no reference")
    watch = stopwatch or Stopwatch()
    experience = {**sequences, "scores": scores_R.to(sequences["tokens"].device, torch.float32)}
    for phase, name, model in (("old_log_prob", "old_logprobs", actor), ("ref", "ref_logprobs", reference)):
        if model is not None:
            with watch(phase):
                experience[name] = _logprobs(model, sequences, vocab, settings)
    with watch("values"):
        micro = settings.log_prob_micro_batch_size_per_gpu
        experience["values"] = sequence_values(critic, sequences, micro_batch_size=micro)
    _check_finite(experience)
    with watch("adv"):
        return experience | _learning_signal(experience, settings.algorithm, kl_coef)


def _logprobs(model: EvaluatedModel, sequences: Batch, vocab: VocabShard, settings: PPOSettings) -> torch.Tensor:
    micro, temperature = settings.log_prob_micro_batch_size_per_gpu, settings.temperature
    return sequence_logprobs(model, sequences, vocab, micro_batch_size=micro, temperature=temperature)


def _check_finite(experience: Batch) -> None:
    mask = experience["response_mask"]
    for name in ("scores", "old_logprobs", "ref_logprobs", "values"):
        if name not in experience:
            continue
        tensor = experience[name] if name == "scores" else torch.where(mask, experience[name], 0.0)
        if not torch.isfinite(tensor).all():
            first = (~torch.isfinite(tensor)).nonzero()[0].tolist()
            raise NumericalError(f"{name} are not finite; the first such entry is at {first} of {list(tensor.shape)}")


def _learning_signal(experience: Batch, settings: AlgorithmSettings, kl_coef: float) -> dict[str, torch.Tensor]:
    mask, kl = experience["response_mask"], None
    if settings.use_kl_in_reward:
        kl = kl_estimate(experience["old_logprobs"], experience["ref_logprobs"], mask, settings.kl_penalty)
    rewards = token_level_rewards(experience["scores"], mask, kl, kl_coef)
    advantages, returns = gae(rewards, experience["values"], mask, gamma=settings.gamma, lam=settings.lam)
    if settings.whiten_advantages:
        advantages = masked_whiten(advantages, mask)
    return {"rewards": rewards, "advantages": advantages, "returns": returns}
