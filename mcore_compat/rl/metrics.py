"""Every metric of a PPO step: a table of names with formulas, and functions that compute those of the data.

The names are verl's where verl has the metric. ``as_markdown`` renders the table for the documentation.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import torch

from mcore_compat.rl.advantages import masked_mean
from mcore_compat.rl.kl import kl_estimate

if TYPE_CHECKING:
    from mcore_compat.contracts import Batch


class Metric(NamedTuple):
    """A row of the table: a name, or several with ``{a,b}``, and what it is."""

    name: str
    formula: str


_UPDATES = "mean over the optimizer steps of this PPO step"

TABLE: tuple[Metric, ...] = (
    Metric("actor/pg_loss", f"clipped surrogate loss per response token, {_UPDATES}"),
    Metric("actor/ppo_kl", f"mean of old log-prob - new log-prob over response tokens, {_UPDATES}; first one: 0"),
    Metric("actor/pg_clipfrac", f"share of response tokens where clipping sets the loss, {_UPDATES}"),
    Metric("actor/entropy", f"entropy of the policy at its temperature per response token, nats, {_UPDATES}"),
    Metric("actor/kl_loss", f"KL to the reference per response token, estimator `kl_loss_type`, {_UPDATES}"),
    Metric("actor/kl_coef", "weight of `actor/kl_loss` in the loss"),
    Metric("actor/grad_norm", f"global L2 norm of the gradient before clipping, {_UPDATES}"),
    Metric("actor/lr", "learning rate of this PPO step"),
    Metric(
        "actor/param_change",
        "L2 norm of (weights streamed to the rollout engine after this step - those before it)",
    ),
    Metric("critic/vf_loss", f"half the (clipped) squared error of the value per response token, {_UPDATES}"),
    Metric("critic/vf_clipfrac", f"share of response tokens where value clipping sets the loss, {_UPDATES}"),
    Metric("critic/vpred_mean", f"mean value of response tokens, {_UPDATES}"),
    Metric("critic/grad_norm", f"global L2 norm of the gradient before clipping, {_UPDATES}"),
    Metric("critic/lr", "learning rate of this PPO step"),
    Metric(
        "critic/kl",
        "mean over response tokens of exp(d) - 1 - d, d = log-prob of reference - of old actor (k3)",
    ),
    Metric("critic/kl_coeff", "weight of the KL in the reward"),
    Metric("critic/score/{mean,max,min}", "what the reward function gave, over responses"),
    Metric(
        "critic/rewards/{mean,max,min}",
        "sum of token rewards (score - weight · KL) per response, over responses",
    ),
    Metric("critic/advantages/{mean,max,min}", "advantages as used by the loss (whitened), over response tokens"),
    Metric("critic/returns/{mean,max,min}", "advantage before whitening + value, over response tokens"),
    Metric("critic/values/{mean,max,min}", "values before the update, over response tokens"),
    Metric("response_length/{mean,max,min}", "response tokens, end token included, over responses"),
    Metric("response_length/clip_ratio", "share of responses as long as `data.max_response_length`"),
    Metric("prompt_length/{mean,max,min}", "prompt tokens, over responses"),
    Metric("prompt_length/clip_ratio", "share of prompts as long as `data.max_prompt_length`"),
    Metric("val/score/mean", "mean score of the validation prompts"),
    Metric("timing_s/gen", "seconds: sampling responses"),
    Metric("timing_s/reward", "seconds: reward function"),
    Metric("timing_s/old_log_prob", "seconds: log-probabilities of the actor"),
    Metric("timing_s/ref", "seconds: log-probabilities of the reference"),
    Metric("timing_s/values", "seconds: values of the critic"),
    Metric("timing_s/adv", "seconds: KL, rewards and advantages"),
    Metric("timing_s/update_critic", "seconds: all optimizer steps of the critic"),
    Metric("timing_s/update_actor", "seconds: all optimizer steps of the actor"),
    Metric("timing_s/update_weights", "seconds: streaming the actor's weights to the rollout engine"),
    Metric("timing_s/testing", "seconds: validation"),
    Metric("timing_s/step", "seconds: the whole step"),
    Metric("perf/throughput", "prompt and response tokens of the step / (`timing_s/step` · ranks)"),
)


def names() -> frozenset[str]:
    """All metric names, one by one."""
    return frozenset(name for metric in TABLE for name in _expanded(metric.name))


def _expanded(name: str) -> list[str]:
    stem, brace, rest = name.partition("{")
    return [stem + option for option in rest.rstrip("}").split(",")] if brace else [name]


def as_markdown() -> str:
    """The table as Markdown, one row a metric."""
    rows = [f"| `{metric.name}` | {metric.formula} |" for metric in TABLE]
    return "\n".join(["| metric | definition |", "|---|---|", *rows]) + "\n"


def data_metrics(experience: Batch, *, max_prompt_length: int, max_response_length: int) -> dict[str, float]:
    """Metrics of the experience itself: KL, scores, rewards, advantages, returns, values and lengths.

    Args:
        experience: What :func:`mcore_compat.rl.experience.make_experience` returned, all rows.
        max_prompt_length: Longest prompt that the run allows.
        max_response_length: Longest response.

    Returns:
        Names of the table to numbers. ``critic/kl`` only with a reference.
    """
    mask = experience["response_mask"]
    tokenwise = {f"critic/{name}": experience[name][mask] for name in ("advantages", "returns", "values")}
    rowwise = {
        "critic/score": experience["scores"],
        "critic/rewards": torch.where(mask, experience["rewards"], 0.0).sum(dim=1),
        "response_length": experience["response_lengths"],
        "prompt_length": experience["prompt_lengths"],
    }
    metrics = {name: value for key, values in {**rowwise, **tokenwise}.items() for name, value in _spread(key, values)}
    for key, limit in (("response", max_response_length), ("prompt", max_prompt_length)):
        metrics[f"{key}_length/clip_ratio"] = (experience[f"{key}_lengths"] == limit).float().mean().item()
    if "ref_logprobs" in experience:
        kl = kl_estimate(experience["old_logprobs"], experience["ref_logprobs"], mask, "k3")
        metrics["critic/kl"] = masked_mean(kl, mask).item()
    return metrics


def _spread(key: str, values: torch.Tensor) -> Iterator[tuple[str, float]]:
    wide = values.double()
    yield from ((f"{key}/{name}", getattr(wide, name)().item()) for name in ("mean", "max", "min"))


class Stopwatch:
    """Seconds per named phase, added up: ``with watch("gen"): ...``."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Time a phase, also one that raises."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start

    def metrics(self) -> dict[str, float]:
        """``timing_s/<phase>`` for every phase."""
        return {f"timing_s/{name}": seconds for name, seconds in self.seconds.items()}


def throughput(experience: Batch, timings: Mapping[str, float], ranks: int) -> dict[str, float]:
    """``perf/throughput`` of a step, tokens per second and rank, from ``timing_s/step``."""
    tokens = int(experience["prompt_lengths"].sum() + experience["response_lengths"].sum())
    return {"perf/throughput": tokens / (timings["timing_s/step"] * ranks)}
