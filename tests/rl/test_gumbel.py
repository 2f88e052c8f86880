from __future__ import annotations

import math

import pytest
import torch

from mcore_compat.rl.gumbel import gumbel_noise, keys_as_int64


def test_a_pure_function_of_key_position_and_token() -> None:
    keys = keys_as_int64([7, 8, 7, -1, 2**64 - 1])
    noise = gumbel_noise(keys, 3, 50)
    assert torch.equal(noise[0], noise[2])
    assert torch.equal(noise[3], noise[4])
    assert torch.equal(noise[:, :20], gumbel_noise(keys, 3, 20))
    assert torch.equal(noise[1:2], gumbel_noise(keys[1:2], 3, 50))
    assert not (noise[0] == noise[1]).any()
    assert not (noise == gumbel_noise(keys, 4, 50)).any()


def test_the_first_bits_never_change() -> None:
    """Runs of other versions must stay comparable: these numbers are part of the interface."""
    noise = gumbel_noise(keys_as_int64([42]), 0, 3)
    assert noise[0].tolist() == pytest.approx([-0.0911996, 1.7216015, 2.5635996], abs=1e-5)


@pytest.mark.parametrize("what", ["neighbouring keys", "positions", "tokens"])
def test_distribution_and_independence(what: str) -> None:
    rows = {
        "neighbouring keys": gumbel_noise(torch.arange(200_000), 0, 2).T,
        "positions": torch.cat([gumbel_noise(torch.arange(1000), t, 2) for t in range(200)]).T,
        "tokens": gumbel_noise(torch.tensor([1, 2]), 0, 200_000),
    }[what].double()
    uniform = (-(-rows).exp()).exp()
    assert torch.isfinite(rows).all()
    # Five standard errors each.
    error = 5 / math.sqrt(200_000)
    assert (uniform.mean(dim=1) - 0.5).abs().max() < error * math.sqrt(1 / 12)
    assert (uniform.var(dim=1) - 1 / 12).abs().max() < error * math.sqrt(1 / 180)
    assert torch.corrcoef(rows)[0, 1].abs() < error
    assert torch.corrcoef(torch.stack([rows[0, :-1], rows[0, 1:]]))[0, 1].abs() < error


def test_adding_it_samples_from_the_softmax() -> None:
    logits = torch.tensor([2.0, 0.0, -1.0, 1.0])
    drawn = (logits + gumbel_noise(torch.arange(100_000), 5, 4)).argmax(dim=1)
    shares = torch.bincount(drawn, minlength=4) / 100_000
    assert (shares - logits.softmax(0)).abs().max() < 0.01
