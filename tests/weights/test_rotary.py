"""Rotary frequencies are those of transformers, bit for bit."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from mcore_compat.weights import inverse_frequencies, read_architecture


@pytest.mark.parametrize("kind", ["llama2", "llama3", "linear", "qwen3"])
def test_equal_to_transformers(folders: dict[str, Path], kind: str) -> None:
    from transformers import AutoModelForCausalLM

    expected = AutoModelForCausalLM.from_pretrained(folders[kind]).model.rotary_emb.inv_freq
    found = inverse_frequencies(read_architecture(folders[kind]))
    assert found.dtype == torch.float32
    assert torch.equal(found, expected)


def test_llama3_scaling_reaches_all_three_bands(folders: dict[str, Path]) -> None:
    """Otherwise the comparison above would not see a mistake in one of them."""
    scaled = inverse_frequencies(read_architecture(folders["llama3"]))
    plain = 1.0 / 500.0 ** (torch.arange(0, 8, 2) / 8)
    ratios = (plain / scaled).tolist()
    assert min(ratios) == 1.0
    assert max(ratios) == 8.0
    assert any(1.01 < ratio < 7.99 for ratio in ratios)
