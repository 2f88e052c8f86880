from __future__ import annotations

import pytest
import torch

from mcore_compat.rl.advantages import gae, masked_mean, masked_whiten, token_level_rewards

MASK = torch.tensor([[0, 1, 1, 1, 0, 0], [0, 0, 1, 1, 1, 0]], dtype=torch.bool)


def random(seed: int) -> torch.Tensor:
    return torch.randn(MASK.shape, generator=torch.Generator().manual_seed(seed))


def by_definition(rewards: list[float], values: list[float], gamma: float, lam: float) -> list[float]:
    """A_t = Σ_k (gamma · lam)^k · delta_{t+k}, written out."""
    ahead = [*values[1:], 0.0]
    deltas = [r + gamma * n - v for r, v, n in zip(rewards, values, ahead, strict=True)]
    return [sum((gamma * lam) ** k * delta for k, delta in enumerate(deltas[t:])) for t in range(len(deltas))]


@pytest.mark.parametrize(("gamma", "lam"), [(1.0, 1.0), (0.9, 0.8), (1.0, 0.0)])
def test_gae_is_its_definition(gamma: float, lam: float) -> None:
    rewards, values = random(0), random(1)
    advantages, returns = gae(rewards, values, MASK, gamma=gamma, lam=lam)
    for row in range(2):
        inside = MASK[row]
        expected = by_definition(rewards[row][inside].tolist(), values[row][inside].tolist(), gamma, lam)
        assert advantages[row][inside].tolist() == pytest.approx(expected, rel=1e-4, abs=1e-6)
    assert torch.allclose(returns[MASK], (advantages + values)[MASK])


def test_gae_ignores_what_lies_outside_the_mask() -> None:
    rewards, values = random(0), random(1)
    clean = gae(rewards, values, MASK, gamma=0.9, lam=0.9)
    rewards[~MASK] = values[~MASK] = float("nan")
    dirty = gae(rewards, values, MASK, gamma=0.9, lam=0.9)
    assert all(torch.equal(a, b) for a, b in zip(clean, dirty, strict=True))
    assert (dirty[0][~MASK] == 0).all()
    assert (dirty[1][~MASK] == 0).all()


def test_gae_steps_over_holes_in_the_mask() -> None:
    holes = torch.tensor([[1, 0, 1, 0, 0, 1]], dtype=torch.bool)
    rewards, values = random(2)[:1], random(3)[:1]
    advantages, _ = gae(rewards, values, holes, gamma=0.9, lam=0.7)
    expected = by_definition(rewards[holes].tolist(), values[holes].tolist(), 0.9, 0.7)
    assert advantages[holes].tolist() == pytest.approx(expected, rel=1e-4)


def test_returns_with_lambda_one_are_the_discounted_rewards() -> None:
    rewards = token_level_rewards(torch.tensor([1.0, 2.0]), MASK)
    _, returns = gae(rewards, random(1), MASK, gamma=0.5, lam=1.0)
    assert returns[0, 1:4].tolist() == pytest.approx([0.25, 0.5, 1.0], rel=1e-5)


def test_score_is_on_the_last_response_token_and_kl_on_all() -> None:
    kl = torch.where(MASK, 0.5, 0.0)
    rewards = token_level_rewards(torch.tensor([1.0, 2.0]), MASK, kl, kl_coef=0.1)
    assert rewards.tolist() == [
        pytest.approx([0, -0.05, -0.05, 0.95, 0, 0]),
        pytest.approx([0, 0, -0.05, -0.05, 1.95, 0]),
    ]


def test_whitening() -> None:
    values = random(4) * 3 + 5
    values[~MASK] = float("inf")
    white = masked_whiten(values, MASK)
    assert white[MASK].mean().item() == pytest.approx(0, abs=1e-6)
    assert white[MASK].std().item() == pytest.approx(1, rel=1e-5)
    assert (white[~MASK] == 0).all()
    kept = masked_whiten(values, MASK, shift_mean=False)
    assert kept[MASK].mean().item() == pytest.approx(values[MASK].mean().item(), rel=1e-5)
    assert kept[MASK].std().item() == pytest.approx(1, rel=1e-5)


def test_whitening_a_single_token_is_finite() -> None:
    one = torch.zeros_like(MASK)
    one[0, 2] = True
    assert torch.equal(masked_whiten(random(5), one), torch.zeros(MASK.shape))


def test_mean_of_nothing_is_zero() -> None:
    assert masked_mean(torch.full((2, 2), float("nan")), torch.zeros(2, 2)) == 0
