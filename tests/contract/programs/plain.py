"""T0 once more, in plain torch and double precision on one process: what all releases and layouts are compared with."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import gelu, layer_norm, linear

from mcore_compat.contracts import Batch, OptimizerSettings

HEADS, EPSILON = 4, 1e-5
Weights = dict[str, torch.Tensor]


def train(weights: Weights, batch: Batch, settings: OptimizerSettings, *, steps: int, value: bool) -> dict[str, Any]:
    """Steps of AdamW on the mean over all valid tokens, with the whole batch at once.

    Args:
        weights: Initial ones under the names of the whole model; no ``output_layer.weight``: the embedding is tied.
        batch: ``tokens`` and ``mask`` [R, T], and ``targets`` [R, T] for values.
        settings: Of the other side: rate, moments, decay and clipping are taken.
        steps: How many.
        value: Squared error of values instead of the cross-entropy of the tokens themselves.

    Returns:
        norm (before clipping) and loss of the last step, and the weights after it.
    """
    weights = {name: weight.double().requires_grad_() for name, weight in weights.items()}
    optimizer = torch.optim.AdamW(_groups(weights, settings), lr=settings.lr, betas=settings.betas, eps=settings.eps)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = _mean_loss(weights, batch, value=value)
        torch.autograd.backward(loss)
        norm = torch.nn.utils.clip_grad_norm_(weights.values(), settings.clip_grad or float("inf"))
        optimizer.step()
    return {"norm": norm.item(), "loss": loss.item(), "weights": {name: w.detach() for name, w in weights.items()}}


def _groups(weights: Weights, settings: OptimizerSettings) -> list[dict[str, Any]]:
    """Matrices decay; biases and norms do not."""
    return [
        {"params": [w for w in weights.values() if w.dim() > 1], "weight_decay": settings.weight_decay},
        {"params": [w for w in weights.values() if w.dim() == 1], "weight_decay": 0.0},
    ]


def _mean_loss(weights: Weights, batch: Batch, *, value: bool) -> torch.Tensor:
    hidden = _decoder(weights, batch["tokens"])
    output = linear(hidden, weights.get("output_layer.weight", weights["embedding.word_embeddings.weight"]))
    if value:
        losses = (output[..., 0] - batch["targets"].double()).square()
    else:
        losses = -output.log_softmax(-1).gather(-1, batch["tokens"][..., None])[..., 0]
    return (losses * batch["mask"]).sum() / batch["mask"].sum()


def _decoder(weights: Weights, tokens: torch.Tensor) -> torch.Tensor:
    """Tokens [R, T] to what the head sees [R, T, H]."""
    hidden = weights["embedding.word_embeddings.weight"][tokens]
    layers = 1 + max(int(name.split(".")[2]) for name in weights if name.startswith("decoder.layers."))
    for number in range(layers):
        start = f"decoder.layers.{number}."
        layer = {name.removeprefix(start): weight for name, weight in weights.items() if name.startswith(start)}
        hidden = hidden + _attention(layer, _norm(layer, "input_layernorm", hidden))
        feed_forward = _experts if "mlp.router.weight" in layer else _mlp
        hidden = hidden + feed_forward(layer, _norm(layer, "pre_mlp_layernorm", hidden))
    return _norm(weights, "decoder.final_layernorm", hidden)


def _norm(weights: Weights, name: str, hidden: torch.Tensor) -> torch.Tensor:
    return layer_norm(hidden, hidden.shape[-1:], weights[f"{name}.weight"], weights[f"{name}.bias"], EPSILON)


def _dense(weights: Weights, name: str, hidden: torch.Tensor) -> torch.Tensor:
    return linear(hidden, weights[f"{name}.weight"], weights.get(f"{name}.bias"))


def _attention(layer: Weights, hidden: torch.Tensor) -> torch.Tensor:
    """Causal, with rotary positions; query, key and value of a head lie side by side."""
    mixed = _dense(layer, "self_attention.linear_qkv", hidden).view(*hidden.shape[:-1], HEADS, -1).transpose(1, 2)
    query, key, value = mixed.chunk(3, dim=-1)
    scores = _rotated(query) @ _rotated(key).transpose(-1, -2) / query.shape[-1] ** 0.5
    future = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    context = scores.masked_fill(future, float("-inf")).softmax(-1) @ value
    return _dense(layer, "self_attention.linear_proj", context.transpose(1, 2).flatten(-2))


def _rotated(heads: torch.Tensor) -> torch.Tensor:
    """Rotary embedding (Su et al. 2021), the two halves of a head being the coordinates."""
    length, size = heads.shape[-2:]
    frequencies = 10000.0 ** -(torch.arange(0, size, 2).double() / size)
    angles = torch.arange(length).double()[:, None] * frequencies
    first, second = heads.chunk(2, dim=-1)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


def _mlp(layer: Weights, hidden: torch.Tensor, name: str = "mlp") -> torch.Tensor:
    return _dense(layer, f"{name}.linear_fc2", gelu(_dense(layer, f"{name}.linear_fc1", hidden)))


def _experts(layer: Weights, hidden: torch.Tensor) -> torch.Tensor:
    """The two likeliest experts of each token, weighed by the softmax over these two."""
    chosen, indices = linear(hidden, layer["mlp.router.weight"]).topk(2, dim=-1)
    shares = torch.zeros(*hidden.shape[:-1], len(layer["mlp.router.weight"])).double()
    shares = shares.scatter(-1, indices, chosen.softmax(-1))
    outputs = [_mlp(layer, hidden, f"mlp.experts.{expert}") for expert in range(shares.shape[-1])]
    return (torch.stack(outputs, dim=-1) * shares[..., None, :]).sum(-1)
