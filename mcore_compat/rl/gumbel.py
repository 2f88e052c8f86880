"""Gumbel noise without state: sampling as greedy search over noisy scores (the Gumbel-max trick)."""

from __future__ import annotations

from collections.abc import Sequence

import torch

_GOLDEN = 0x9E3779B97F4A7C15


class AddGumbelNoise:
    """A transformers logits processor with which greedy search samples from the softmax of the scores.

    Args:
        keys: One integer per row; equal keys draw equal noise.
        prompt_width: Tokens in front of the response, padding included.
        device: Where the scores are.
    """

    def __init__(self, keys: Sequence[int], prompt_width: int, device: torch.device) -> None:
        self._keys_R = keys_as_int64(keys, device)
        self._prompt_width = prompt_width

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Add the noise of the token that is next to ``scores`` [R, V]."""
        return scores + gumbel_noise(self._keys_R, input_ids.shape[1] - self._prompt_width, scores.shape[1])


def keys_as_int64(keys: Sequence[int], device: torch.device | str = "cpu") -> torch.Tensor:
    """Python integers of any size as int64 [R], their lowest 64 bits."""
    return torch.tensor([_signed(key) for key in keys], dtype=torch.int64, device=device)


def gumbel_noise(keys_R: torch.Tensor, position: int, vocab_size: int) -> torch.Tensor:
    """Standard Gumbel noise as a pure function of (key, position, token).

    A counter-based generator: one avalanche of the SplitMix64 finaliser (Steele et al. 2014) over key and
    position, one over that and the token. The bits are the same on every device and need no state per
    response.

    Args:
        keys_R: int64.
        position: Number of tokens generated before.
        vocab_size: V.

    Returns:
        [R, V] fp32.
    """
    streams_R = _avalanche(_avalanche(keys_R) + _signed(_GOLDEN * (position + 1)))
    tokens_V = torch.arange(1, vocab_size + 1, device=keys_R.device) * _signed(_GOLDEN)
    bits_RV = _shift_right(_avalanche(streams_R[:, None] + tokens_V), 41)
    # 23 bits and a half fill the 24 of a float: never 0, never 1.
    uniform_RV = (bits_RV.float() + 0.5) * 2.0**-23
    return -torch.log(-torch.log(uniform_RV))


def _avalanche(x: torch.Tensor) -> torch.Tensor:
    x = (x ^ _shift_right(x, 30)) * _signed(0xBF58476D1CE4E5B9)
    x = (x ^ _shift_right(x, 27)) * _signed(0x94D049BB133111EB)
    return x ^ _shift_right(x, 31)


def _shift_right(x: torch.Tensor, bits: int) -> torch.Tensor:
    """Logical shift: int64 shifts copy the sign bit."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _signed(value: int) -> int:
    """The int64 with the same lowest 64 bits."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)
