from __future__ import annotations

import pytest
import torch

from mcore_compat.contracts import VocabShard
from mcore_compat.errors import ConfigError
from mcore_compat.rl.logprobs import logprobs_and_entropy
from tests.launch import run_ranks

WHOLE = VocabShard(0, 12, 10)


def make(dtype: torch.dtype = torch.float32, shape: tuple[int, int, int] = (3, 5, 12)) -> torch.Tensor:
    return 3.0 * torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(1))


def targets(shape: tuple[int, int] = (3, 5)) -> torch.Tensor:
    return torch.randint(10, shape, generator=torch.Generator().manual_seed(2))


def dense(logits: torch.Tensor, wanted: torch.Tensor, real: int = 10) -> tuple[torch.Tensor, torch.Tensor]:
    logp = logits[..., :real].double().log_softmax(-1)
    return logp.gather(-1, wanted[..., None])[..., 0], -(logp.exp() * logp).sum(-1)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.7])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 1e-5)])
def test_equals_dense_float64(temperature: float, dtype: torch.dtype, tolerance: float) -> None:
    logits = make(dtype)
    logprob, entropy = logprobs_and_entropy(logits, targets(), WHOLE, temperature=temperature)
    wanted, disorder = dense(logits.double() / temperature, targets())
    assert logprob.dtype == entropy.dtype == torch.float32
    assert (logprob - wanted).abs().max() < tolerance
    assert (entropy - disorder).abs().max() < tolerance


def test_padding_columns_neither_count_nor_learn() -> None:
    logits = make()
    logits[..., 10:] = 1e4
    logits.requires_grad_()
    logprob, entropy = logprobs_and_entropy(logits, targets(), WHOLE)
    wanted, _ = dense(logits.detach(), targets())
    (logprob.sum() + entropy.sum()).backward()
    assert (logprob - wanted).abs().max() < 1e-5
    assert (logits.grad[..., 10:] == 0).all()
    assert (logits.grad[..., :10] != 0).all()


@pytest.mark.parametrize("temperature", [0.7, 1.0])
def test_gradients_of_both_results(temperature: float) -> None:
    logits = make(torch.float64).requires_grad_()

    def both(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return logprobs_and_entropy(x, targets(), WHOLE, temperature=temperature)

    assert torch.autograd.gradcheck(both, (logits,))


def test_blocks_join_without_a_seam() -> None:
    logits = make(shape=(7, 601, 12)).requires_grad_()
    wanted = targets((7, 601))
    logprob, entropy = logprobs_and_entropy(logits, wanted, WHOLE)
    reference, disorder = dense(logits, wanted)
    (gradient,) = torch.autograd.grad((logprob - 0.1 * entropy).sum(), logits)
    (expected,) = torch.autograd.grad((reference - 0.1 * disorder).sum(), logits)
    assert (logprob - reference).abs().max() < 1e-5
    assert (gradient - expected).abs().max() < 1e-5


def test_logits_stay_as_they_are() -> None:
    logits = make().requires_grad_()
    before = logits.detach().clone()
    logprobs_and_entropy(logits, targets(), WHOLE)[0].sum().backward()
    assert torch.equal(logits.detach(), before)


def test_reusing_the_logits_gives_the_same_gradient() -> None:
    gradients = []
    for reuse in (False, True):
        leaf = make().requires_grad_()
        logprob, entropy = logprobs_and_entropy(leaf * 1.0, targets(), WHOLE, reuse_logits=reuse)
        (logprob.sum() - 0.3 * entropy.sum()).backward()
        gradients.append(leaf.grad)
    assert torch.equal(*gradients)


def test_reusing_logits_that_autograd_still_needs_raises() -> None:
    leaf = make().requires_grad_()
    capped = torch.tanh(leaf)
    logprob, _ = logprobs_and_entropy(capped, targets(), WHOLE, reuse_logits=True)
    with pytest.raises(RuntimeError, match="inplace operation"):
        logprob.sum().backward()


def test_entropy_left_out_is_zero() -> None:
    logits = make().requires_grad_()
    logprob, entropy = logprobs_and_entropy(logits, targets(), WHOLE, entropy=False)
    assert (entropy == 0).all()
    assert not entropy.requires_grad
    assert torch.equal(logprob, logprobs_and_entropy(logits, targets(), WHOLE)[0])


def test_huge_logits_do_not_overflow() -> None:
    logits = make() * 1e4
    logprob, entropy = logprobs_and_entropy(logits, targets(), WHOLE)
    assert torch.isfinite(logprob).all()
    assert torch.isfinite(entropy).all()


def test_transposed_logits() -> None:
    logits = make(shape=(5, 3, 12)).transpose(0, 1)
    wanted, _ = dense(logits, targets())
    assert (logprobs_and_entropy(logits, targets(), WHOLE)[0] - wanted).abs().max() < 1e-5


def test_wrong_number_of_columns() -> None:
    with pytest.raises(ConfigError, match="12 columns; expected 6, 0 to 6"):
        logprobs_and_entropy(make(), targets(), VocabShard(0, 6, 10))


def test_two_ranks_with_a_padded_vocabulary() -> None:
    for errors in run_ranks("tests.rl.tensor_parallel:padded_vocabulary", release=None, nproc=2):
        assert errors["touched"] == 0
        assert max(errors.values()) < 1e-5


def test_a_rank_that_holds_padding_only() -> None:
    first, second = run_ranks("tests.rl.tensor_parallel:rank_of_padding_only", release=None, nproc=2)
    logp = torch.linspace(-3, 3, 8).log_softmax(0)
    assert first[:2] == second[:2] == pytest.approx([logp[2].item(), -(logp.exp() * logp).sum().item()])
    assert first[2] > 0
    assert second[2] == 0
