"""Tiny Llama folders, written without transformers so that a rank makes them in no time."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file

HIDDEN, WIDTH, LAYERS, HEADS = 32, 48, 2, 4
Weights = dict[str, torch.Tensor]


def llama_folder(folder: Path, weights: Weights, *, vocab_size: int) -> Path:
    """Write a tied Llama of the sizes above with these weights, which may contradict ``vocab_size``."""
    folder.mkdir(parents=True)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": vocab_size,
        "hidden_size": HIDDEN,
        "intermediate_size": WIDTH,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS,
        "max_position_embeddings": 64,
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": True,
        "bos_token_id": None,
        "eos_token_id": None,
    }
    (folder / "config.json").write_text(json.dumps(config))
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def normal_weights(std: float, seed: int, rows: int = 64) -> Weights:
    """Every weight, those of the norms too, drawn from a normal distribution with mean 0."""
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.randn(shape, generator=generator) * std for name, shape in _shapes(rows).items()}


def steep_weights(seed: int, rows: int = 64) -> Weights:
    """Matrices with standard deviation 2/sqrt(fan-in), norms at 1: logits that any noise shows in."""
    drawn = normal_weights(1.0, seed, rows)
    return {
        name: weight * 2 / weight.shape[1] ** 0.5 if weight.dim() > 1 else torch.ones_like(weight)
        for name, weight in drawn.items()
    }


def _shapes(rows: int) -> dict[str, tuple[int, ...]]:
    layer = {
        "input_layernorm": (HIDDEN,),
        **{f"self_attn.{part}_proj": (HIDDEN, HIDDEN) for part in "qkvo"},
        "post_attention_layernorm": (HIDDEN,),
        "mlp.gate_proj": (WIDTH, HIDDEN),
        "mlp.up_proj": (WIDTH, HIDDEN),
        "mlp.down_proj": (HIDDEN, WIDTH),
    }
    layers = {f"layers.{number}.{name}": shape for number in range(LAYERS) for name, shape in layer.items()}
    names = {"embed_tokens": (rows, HIDDEN), **layers, "norm": (HIDDEN,)}
    return {f"model.{name}.weight": shape for name, shape in names.items()}
