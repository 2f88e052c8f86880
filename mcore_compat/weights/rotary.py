"""Rotary frequencies as transformers computes them, for every release of Megatron."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from mcore_compat.weights.architecture import Architecture


def inverse_frequencies(architecture: Architecture) -> torch.Tensor:
    """Return the inverse frequencies, [head_dim / 2] fp32 on the CPU, in radians per position.

    Written into the model's rotary module they let releases that know no rope scaling express it. From 0.10
    on that module remembers its results, so write before the first forward pass.

    Source: Su et al. 2021, arXiv:2104.09864; Llama 3.1's scaling as in transformers' ``rope_type`` "llama3".
    """
    exponents = torch.arange(0, architecture.head_dim, 2, dtype=torch.float32) / architecture.head_dim
    frequencies = 1.0 / architecture.rope_theta**exponents
    scaling = architecture.rope_scaling
    if scaling is None:
        return frequencies
    numbers = {key: float(value) for key, value in scaling.items() if key != "rope_type"}
    return frequencies / numbers["factor"] if scaling["rope_type"] == "linear" else _llama3(frequencies, **numbers)


def _llama3(
    frequencies: torch.Tensor,
    factor: float,
    low_freq_factor: float,
    high_freq_factor: float,
    original_max_position_embeddings: float,
) -> torch.Tensor:
    """Stretch long wavelengths by ``factor``, keep short ones, and blend in between."""
    wavelengths = 2 * math.pi / frequencies
    turns = original_max_position_embeddings / wavelengths
    kept = (turns - low_freq_factor) / (high_freq_factor - low_freq_factor)
    blended = (1 - kept) * frequencies / factor + kept * frequencies
    is_long = wavelengths > original_max_position_embeddings / low_freq_factor
    is_short = wavelengths < original_max_position_embeddings / high_freq_factor
    return torch.where(is_long, frequencies / factor, torch.where(is_short, frequencies, blended))
