"""A model of a user's own: logits of each token by itself, so that sequences can be cut anywhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import mcore_compat
from mcore_compat import LossTerm, McoreCompatError
from mcore_compat.contracts import Batch
from tests.contract.programs.t0 import VOCABULARY

WIDTH = 8


class Toy(torch.nn.Module):
    """An embedding and a linear layer, no attention."""

    def __init__(self) -> None:
        super().__init__()
        self.config = mcore_compat.transformer_config(num_layers=1, hidden_size=WIDTH, num_attention_heads=1)
        self.embed = torch.nn.Embedding(VOCABULARY, WIDTH)
        self.head = torch.nn.Linear(WIDTH, VOCABULARY)

    def set_input_tensor(self, tensor: Any) -> None:
        """Nothing comes from another pipeline stage."""

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Logits [R, T, V]."""
        logits: torch.Tensor = self.head(self.embed(tokens))
        return logits


class Price(torch.nn.Module):
    """Multiplies each token by its one parameter, which is 1."""

    def __init__(self) -> None:
        super().__init__()
        self.config = mcore_compat.transformer_config(num_layers=1, hidden_size=WIDTH, num_attention_heads=1)
        self.factor = torch.nn.Parameter(torch.ones(1))

    def set_input_tensor(self, tensor: Any) -> None:
        """Nothing comes from another pipeline stage."""

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Losses [R, T]."""
        return tokens * self.factor


def wrapped(module: Callable[[], torch.nn.Module], **settings: Any) -> list[Any]:
    """A module wrapped for data parallelism, always with the same weights."""
    torch.manual_seed(3)
    chunks: list[Any] = mcore_compat.build_model(lambda: module())
    return mcore_compat.wrap_data_parallel(chunks, settings=mcore_compat.DataParallelSettings(**settings))


def summed(logits: torch.Tensor, tokens: torch.Tensor, mask: torch.Tensor) -> LossTerm:
    """Cross-entropy of the tokens themselves."""
    logprobs = torch.log_softmax(logits, dim=-1).gather(-1, tokens[..., None]).squeeze(-1)
    return LossTerm(-(logprobs * mask).sum(), mask.sum())


def expected_gradients(batch: Batch) -> dict[str, torch.Tensor]:
    """Gradients of the mean over all valid tokens, from autograd alone."""
    torch.manual_seed(3)
    model = Toy()
    term = summed(model(batch["tokens"]), batch["tokens"], batch["mask"])
    names, parameters = zip(*model.named_parameters(), strict=True)
    return dict(zip(names, torch.autograd.grad(term.sum / term.count, parameters), strict=True))


def errors(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> dict[str, float]:
    """Largest distance of each tensor from the expected one."""
    return {name: (found[name] - tensor).abs().max().item() for name, tensor in expected.items()}


def refusal(attempt: Callable[[], Any]) -> str:
    """Type and text of the library's error; empty where there is none."""
    try:
        attempt()
    except McoreCompatError as error:
        return f"{type(error).__name__}: {error}"
    return ""
