"""The cases' common model: two layers of the release's own local specification, tied, rotary, no dropout."""

from __future__ import annotations

from typing import Any

import torch

import mcore_compat
from mcore_compat.contracts import Precision

VOCAB, LENGTH = 64, 16


def small_gpt(precision: Precision = "fp32") -> list[Any]:
    """Build this rank's chunks."""
    config = mcore_compat.transformer_config(
        precision=precision,
        num_layers=2,
        hidden_size=32,
        num_attention_heads=4,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        use_cpu_initialization=True,
        bias_dropout_fusion=False,
        gradient_accumulation_fusion=False,
    )
    return mcore_compat.gpt_model(config, vocab_size=VOCAB, max_sequence_length=LENGTH, share_embeddings=True)


def some_tokens(rows: int = 4, size: int = VOCAB) -> torch.Tensor:
    """Return [rows, LENGTH] token ids below ``size``."""
    return torch.randint(size, (rows, LENGTH), generator=torch.Generator().manual_seed(5))


def run_whole(model: Any, tokens: torch.Tensor) -> torch.Tensor:
    """Logits [R, T, V] of a model that is not split, in the mode it is in."""
    length = tokens.shape[1]
    mask = torch.ones(length, length, dtype=torch.bool).triu(1)[None, None]
    logits: torch.Tensor = model(tokens, torch.arange(length).expand_as(tokens), mask)
    return logits
