"""Case C04: five pairs of actor and reference before any update."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

import mcore_compat
from mcore_compat.contracts import Precision
from mcore_compat.errors import ReferenceMismatch
from tests.contract.programs.small_gpt import run_whole, small_gpt, some_tokens
from tests.contract.programs.t0 import enter


class Policy(torch.nn.Module):
    """Tokens [R, T] to logits [R, T, V], which may be rounded on the way out."""

    def __init__(self, precision: Precision = "fp32", *, seed: int = 1, rounding: torch.dtype | None = None) -> None:
        super().__init__()
        [self.model] = small_gpt(precision)
        self.rounding = rounding
        _steepen(self.model, seed)
        self.eval()

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        logits = run_whole(self.model, tokens)
        return logits if self.rounding is None else logits.to(self.rounding).to(logits.dtype)


def parity(steps: dict[str, Any], folder: Path) -> dict[str, dict[str, Any]]:
    """The verdict on each pair, and the error that a failed one becomes."""
    enter()
    mcore_compat.seed(1)
    pairs = {
        "a": (Policy(), Policy()),
        "b": (Policy("bf16"), Policy("bf16")),
        "c": (Policy("bf16"), Policy()),
        "d": (Policy(), Policy(rounding=torch.bfloat16)),
        "e": (Policy(), Policy(seed=2)),
    }
    return {name: _verdict(*pair) for name, pair in pairs.items()}


def _verdict(actor: Policy, reference: Policy) -> dict[str, Any]:
    found = mcore_compat.reference_parity(actor, reference, {"tokens": some_tokens()})
    try:
        found.require()
    except ReferenceMismatch as error:
        return {**asdict(found), "error": str(error)}
    return {**asdict(found), "error": ""}


@torch.no_grad()
def _steepen(model: torch.nn.Module, seed: int) -> None:
    """Draw every matrix from a normal distribution with standard deviation 2/sqrt(fan-in)."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 2 / parameter.shape[1] ** 0.5)
