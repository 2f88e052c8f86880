from __future__ import annotations

import math

import pytest
import torch

from mcore_compat.errors import ConfigError, NumericalError
from mcore_compat.rl.advantages import masked_mean
from mcore_compat.rl.kl import AdaptiveKLController, FixedKLController, kl_controller, kl_estimate
from mcore_compat.rl.settings import KLControlSettings

DIFFERENCE = torch.tensor([0.1, -0.2, 95.0])


def test_overflow_behind_the_mask_has_no_effect() -> None:
    logprobs = torch.zeros(3, requires_grad=True)
    mask = torch.tensor([1, 1, 0])
    mean = masked_mean(kl_estimate(logprobs, DIFFERENCE, mask, "low_var_kl"), mask)
    mean.backward()
    assert mean.item() == pytest.approx(0.0119508, abs=1e-7)
    assert torch.isfinite(logprobs.grad).all()
    assert logprobs.grad[2] == 0
    assert (logprobs.grad[:2] != 0).all()


def test_overflow_under_the_mask_is_an_error_that_lists_positions() -> None:
    with pytest.raises(NumericalError, match=r"at position 2: .* 95 nats"):
        kl_estimate(torch.zeros(3), DIFFERENCE, torch.ones(3), "k3")


def test_positions_of_a_batch() -> None:
    difference = torch.zeros(2, 3)
    difference[0, 2] = difference[1, 1] = math.inf
    with pytest.raises(NumericalError, match=r"at position \(0, 2\), \(1, 1\):"):
        kl_estimate(torch.zeros(2, 3), difference, torch.ones(2, 3), "k1")


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("kl", "k1"), [-0.1, 0.2]),
        (("abs",), [0.1, 0.2]),
        (("mse", "k2"), [0.005, 0.02]),
        (("low_var_kl", "k3"), [math.exp(0.1) - 1.1, math.exp(-0.2) - 0.8]),
    ],
)
def test_estimators(names: tuple[str, ...], expected: list[float]) -> None:
    for name in names:
        estimate = kl_estimate(torch.zeros(2), DIFFERENCE[:2], torch.ones(2), name)
        assert estimate.tolist() == pytest.approx(expected, rel=1e-5)


def test_k1_and_k3_are_unbiased() -> None:
    policy, reference = torch.tensor([0.1, 0.2, 0.7]).log(), torch.tensor([0.3, 0.3, 0.4]).log()
    exact = (policy.exp() * (policy - reference)).sum().item()
    for name in ("k1", "k3"):
        expectation = (policy.exp() * kl_estimate(policy, reference, torch.ones(3), name)).sum().item()
        assert expectation == pytest.approx(exact, rel=1e-5)


def test_k3_is_never_negative_even_for_the_smallest_difference() -> None:
    differences = torch.linspace(-1e-3, 1e-3, 1001)
    assert (kl_estimate(torch.zeros(1001), differences, torch.ones(1001), "k3") >= 0).all()
    assert kl_estimate(torch.ones(1), torch.ones(1), torch.ones(1), "k3") == 0


def test_unknown_estimator() -> None:
    with pytest.raises(ConfigError, match="'k9'; known are kl, k1"):
        kl_estimate(torch.zeros(1), torch.zeros(1), torch.ones(1), "k9")


def test_adaptive_controller_moves_towards_the_target() -> None:
    controller = AdaptiveKLController(0.1, target_kl=1.0, horizon=1000)
    controller.update(1.1, rows=100)
    assert controller.coef == pytest.approx(0.1 * (1 + 0.1 * 100 / 1000))
    controller.coef = 0.1
    controller.update(50.0, rows=100)
    assert controller.coef == pytest.approx(0.1 * (1 + 0.2 * 100 / 1000))
    controller.coef = 0.1
    controller.update(0.0, rows=100)
    assert controller.coef == pytest.approx(0.1 * (1 - 0.2 * 100 / 1000))


def test_controllers_from_settings() -> None:
    fixed = kl_controller(KLControlSettings(kl_coef=0.3))
    fixed.update(99.0, rows=10)
    assert isinstance(fixed, FixedKLController)
    assert fixed.coef == 0.3
    assert isinstance(kl_controller(KLControlSettings(type="adaptive")), AdaptiveKLController)
    with pytest.raises(ConfigError, match="target_kl=0"):
        kl_controller(KLControlSettings(type="adaptive", target_kl=0))
