"""Estimates of KL(policy || reference) from sampled tokens, and controllers of its weight.

With d = log reference(token) - log policy(token), of a token that the policy sampled
(Schulman 2020, "Approximating KL Divergence"):

=========  ================  =======================================
name       per token         expectation
=========  ================  =======================================
k1, kl     -d                the KL; single terms may be negative
abs        |d|               an upper bound of the KL
k2, mse    d² / 2            close to the KL while it is small
k3,        exp(d) - 1 - d    the KL; no term is negative, low variance
low_var_kl
=========  ================  =======================================
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch

from mcore_compat.errors import ConfigError, NumericalError
from mcore_compat.rl.settings import KLControlSettings

_SHOWN_POSITIONS = 8


def _k1(d: torch.Tensor) -> torch.Tensor:
    return -d


def _k2(d: torch.Tensor) -> torch.Tensor:
    return 0.5 * d.square()


def _k3(d: torch.Tensor) -> torch.Tensor:
    # exp(d) - 1 loses all digits of a small d, and the difference may come out negative.
    return torch.expm1(d) - d


_ESTIMATORS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "kl": _k1,
    "k1": _k1,
    "abs": torch.abs,
    "mse": _k2,
    "k2": _k2,
    "low_var_kl": _k3,
    "k3": _k3,
}


def kl_estimate(
    logprobs: torch.Tensor, ref_logprobs: torch.Tensor, mask: torch.Tensor, kind: str = "k3"
) -> torch.Tensor:
    """Estimate the KL of each token.

    The mask is applied to the difference, before it is exponentiated: what padding holds can neither overflow
    nor send a gradient.

    Args:
        logprobs: Of the policy, any shape, fp32; gradients flow to it.
        ref_logprobs: Of the reference, same shape.
        mask: Same shape, bool or 0/1; the tokens that count.
        kind: A name of the table above.

    Returns:
        Same shape; 0 where the mask is.

    Raises:
        NumericalError: An estimate under the mask is not finite; its positions are listed.
        ConfigError: Unknown ``kind``.
    """
    if kind not in _ESTIMATORS:
        raise ConfigError(f"unknown KL estimator {kind!r}; known are {', '.join(_ESTIMATORS)}")
    difference = torch.where(mask.bool(), ref_logprobs - logprobs, 0.0)
    estimate = _ESTIMATORS[kind](difference)
    _refuse_overflow(estimate.detach(), difference.detach(), kind)
    return estimate


def _refuse_overflow(estimate: torch.Tensor, difference: torch.Tensor, kind: str) -> None:
    bad = ~torch.isfinite(estimate)
    if not bad.any():
        return
    positions = bad.nonzero().tolist()
    named = [str(p[0]) if len(p) == 1 else str(tuple(p)) for p in positions[:_SHOWN_POSITIONS]]
    more = f" and {len(positions) - _SHOWN_POSITIONS} more" if len(positions) > _SHOWN_POSITIONS else ""
    raise NumericalError(
        f"KL estimate {kind!r} is not finite at position {', '.join(named)}{more}: reference minus policy is "
        f"{difference[bad][0].item():g} nats there, expected a difference small enough to exponentiate",
        hint="compare policy and reference at these tokens; k1 and k2 do not exponentiate",
    )


class KLController(Protocol):
    """Weight of the KL in the reward, over time. ``coef`` is all of its state."""

    coef: float

    def update(self, current_kl: float, rows: int) -> None:
        """Take note of the KL per token of ``rows`` new responses."""
        ...


class FixedKLController:
    """The weight stays."""

    def __init__(self, coef: float) -> None:
        self.coef = coef

    def update(self, current_kl: float, rows: int) -> None:
        """Nothing to adapt."""


class AdaptiveKLController:
    """Steers the KL to a target: clipped proportional control of log coef (Ziegler et al. 2019, 2.2).

    Args:
        coef: First weight.
        target_kl: KL per token to reach.
        horizon: Responses after which an error of 20 % has changed the weight by about 20 %.
    """

    MAX_ERROR = 0.2

    def __init__(self, coef: float, target_kl: float, horizon: float) -> None:
        self.coef = coef
        self.target_kl = target_kl
        self.horizon = horizon

    def update(self, current_kl: float, rows: int) -> None:
        """Multiply the weight by 1 + clip(current / target - 1, ±0.2) · rows / horizon."""
        error = min(max(current_kl / self.target_kl - 1.0, -self.MAX_ERROR), self.MAX_ERROR)
        self.coef *= 1.0 + error * rows / self.horizon


def kl_controller(settings: KLControlSettings) -> KLController:
    """Return the controller that the settings ask for.

    Raises:
        ConfigError: Target or horizon of an adaptive controller is not positive.
    """
    if settings.type == "fixed":
        return FixedKLController(settings.kl_coef)
    if settings.target_kl <= 0 or settings.horizon <= 0:
        raise ConfigError(
            f"algorithm.kl_ctrl has target_kl={settings.target_kl} and horizon={settings.horizon}; "
            "an adaptive controller needs both above 0"
        )
    return AdaptiveKLController(settings.kl_coef, settings.target_kl, settings.horizon)
