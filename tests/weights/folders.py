"""Tiny random models in Hugging Face format, one of each kind that can be loaded."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

SIZES = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 4, "num_attention_heads": 4}
# Long enough for wavelengths on both sides of, and inside, the band that Llama 3 blends.
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
KINDS: dict[str, dict[str, Any]] = {
    "llama2": {"num_key_value_heads": 4, "vocab_size": 97},
    "llama3": {"num_key_value_heads": 2, "vocab_size": 90, "rope_parameters": LLAMA3_ROPE},
    "linear": {
        "num_key_value_heads": 2,
        "vocab_size": 90,
        "rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0},
    },
    "qwen2": {"num_key_value_heads": 2, "vocab_size": 101, "tie_word_embeddings": True},
    "qwen3": {"num_key_value_heads": 2, "vocab_size": 96, "head_dim": 16},
}


def make_folder(kind: str, folder: Path) -> Path:
    """Save a random model of a kind; norms and biases are random as well, so that none can be mixed up."""
    model = _model(kind)
    torch.manual_seed(sum(map(ord, kind)))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(1.0 if "norm" in name else 0.0, 0.2)
    model.save_pretrained(folder)
    return folder


def expected_logits(folder: Path, tokens: torch.Tensor) -> torch.Tensor:
    """Return the fp32 logits [R, T, V] that transformers computes for the model in a folder."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    with torch.no_grad():
        logits: torch.Tensor = model.eval()(tokens).logits
    return logits


def some_tokens(vocab_size: int, length: int = 48) -> torch.Tensor:
    """Return [2, length] token ids."""
    return torch.randint(0, vocab_size, (2, length), generator=torch.Generator().manual_seed(3))


def stored(folder: Path, dropped: Iterable[str] = ()) -> dict[str, torch.Tensor]:
    """Return the tensors of a folder with one weight file."""
    from safetensors.torch import load_file

    return {name: tensor for name, tensor in load_file(folder / "model.safetensors").items() if name not in dropped}


def _model(kind: str) -> Any:
    import transformers as hf

    classes = {"qwen2": (hf.Qwen2Config, hf.Qwen2ForCausalLM), "qwen3": (hf.Qwen3Config, hf.Qwen3ForCausalLM)}
    config, model = classes.get(kind, (hf.LlamaConfig, hf.LlamaForCausalLM))
    return model(config(**{**SIZES, "max_position_embeddings": 128, **KINDS[kind]}))
