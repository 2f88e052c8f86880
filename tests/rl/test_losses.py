from __future__ import annotations

import math

import pytest
import torch

from mcore_compat.contracts import LossTerm, VocabShard
from mcore_compat.rl.losses import actor_loss, policy_loss, value_loss
from mcore_compat.rl.settings import ActorSettings

MASK = torch.tensor([[1, 1, 1, 1, 0]], dtype=torch.bool)


def metric(term: LossTerm, name: str) -> float:
    total, count = term.metrics[name]
    return (total / count).item()


def test_clipped_policy_loss_by_hand() -> None:
    ratio = torch.tensor([[1.5, 1.5, 0.5, 0.5, math.inf]])
    advantages = torch.tensor([[1.0, -1.0, 1.0, -1.0, 1.0]])
    logprobs = ratio.log().requires_grad_()
    term = policy_loss(logprobs, torch.zeros(1, 5), advantages, MASK, clip_ratio=0.2)
    assert term.sum.item() == pytest.approx(-1.2 + 1.5 - 0.5 + 0.8)
    assert term.count.item() == 4
    assert metric(term, "pg_clipfrac") == 0.5
    assert metric(term, "ppo_kl") == pytest.approx(-(2 * math.log(1.5) + 2 * math.log(0.5)) / 4)
    assert metric(term, "pg_loss") == pytest.approx(0.6 / 4)
    term.sum.backward()
    assert logprobs.grad[0].tolist() == pytest.approx([0, 1.5, -0.5, 0, 0])


def test_clipped_value_loss_by_hand() -> None:
    values = torch.tensor([[0.1, 1.0, -1.0, 0.0, math.nan]]).requires_grad_()
    returns = torch.tensor([[0.0, 2.0, 0.0, 0.0, 0.0]])
    term = value_loss(values, torch.zeros(1, 5), returns, MASK, cliprange_value=0.5)
    assert term.sum.item() == pytest.approx(0.5 * (0.01 + 1.5**2 + 1.0 + 0.0))
    assert metric(term, "vf_clipfrac") == 0.25
    assert metric(term, "vpred_mean") == pytest.approx(0.1 / 4)
    term.sum.backward()
    assert values.grad[0].tolist() == pytest.approx([0.1, 0, -1.0, 0, 0])


def batch(logits: torch.Tensor) -> dict[str, torch.Tensor]:
    targets = torch.tensor([[1, 2, 3, 0, 0]])
    old = logits.log_softmax(-1).gather(-1, targets[..., None])[..., 0].detach()
    return {
        "targets": targets,
        "response_mask": MASK,
        "old_logprobs": old,
        "ref_logprobs": old - 0.5,
        "advantages": torch.zeros(1, 5),
    }


def test_entropy_bonus_and_kl_loss_enter_with_their_weights() -> None:
    logits = torch.randn(1, 5, 8, generator=torch.Generator().manual_seed(0))
    data, vocab = batch(logits), VocabShard(0, 8, 8)
    settings = ActorSettings(entropy_coeff=0.1, use_kl_loss=True, kl_loss_coef=0.3, kl_loss_type="k2")
    term = actor_loss(settings, vocab)(logits.clone(), data)
    logp = logits.log_softmax(-1)
    entropy = -(logp.exp() * logp).sum(-1)[MASK].sum().item()
    assert metric(term, "entropy") * 4 == pytest.approx(entropy, rel=1e-5)
    assert metric(term, "kl_loss") == pytest.approx(0.125, rel=1e-5)
    assert term.sum.item() == pytest.approx(-0.1 * entropy + 0.3 * 4 * 0.125, rel=1e-5)


def test_terms_without_weight_send_no_gradient() -> None:
    leaf = torch.randn(1, 5, 8, generator=torch.Generator().manual_seed(0)).requires_grad_()
    term = actor_loss(ActorSettings(), VocabShard(0, 8, 8))(leaf * 1.0, batch(leaf.detach()))
    term.sum.backward()
    assert (leaf.grad == 0).all()
    assert set(term.metrics) == {"pg_loss", "pg_clipfrac", "ppo_kl", "entropy"}


def test_temperature_divides_the_logits() -> None:
    logits = torch.randn(1, 5, 8, generator=torch.Generator().manual_seed(0))
    vocab, data = VocabShard(0, 8, 8), batch(logits / 2.0)
    term = actor_loss(ActorSettings(), vocab, temperature=2.0)(logits.clone(), data)
    assert metric(term, "ppo_kl") == pytest.approx(0, abs=1e-6)
