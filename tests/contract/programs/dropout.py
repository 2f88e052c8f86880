"""Case C05: an actor with dropout, left in training mode."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

import mcore_compat
from mcore_compat.bridge import MegatronBackend, MegatronModel
from mcore_compat.contracts import OptimizerSettings
from tests.contract.programs.folders import llama_folder, steep_weights
from tests.contract.programs.small_gpt import run_whole, some_tokens

DROPOUT = {"hidden_dropout": 0.1, "attention_dropout": 0.1}


def dropout(steps: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Evaluate in training mode, with and without an error half-way; count warnings."""
    folder = llama_folder(Path("steep"), steep_weights(seed=1), vocab_size=64)
    mcore_compat.reset()
    quiet = _warnings(lambda: MegatronBackend(device="cpu").actor(folder, OptimizerSettings()))
    mcore_compat.reset()
    backend = MegatronBackend(device="cpu", model_config=DROPOUT)
    reference: list[MegatronModel] = []
    of_reference = _warnings(lambda: reference.append(backend.reference(folder)))
    trained: list[MegatronModel] = []
    of_actor = _warnings(lambda: trained.append(backend.actor(folder, OptimizerSettings())))
    of_critic = _warnings(lambda: trained.append(backend.critic(folder, OptimizerSettings())))
    return {
        "warnings": {"none": quiet, "reference": of_reference, "actor": of_actor, "critic": of_critic},
        **_evaluations(trained[0], reference[0]),
    }


def _evaluations(actor: MegatronModel, reference: MegatronModel) -> dict[str, Any]:
    batch = {"tokens": some_tokens()}
    before = _mix_modes(actor)
    expected = reference(batch)
    with torch.no_grad():
        noisy = _logprobs(run_whole(actor.chunks[0], batch["tokens"]), batch)
    difference = (actor(batch) - expected).abs().max().item()
    after = _modes(actor)
    raised = _raises_half_way(actor, batch)
    return {
        "noise": (noisy - expected).abs().max().item(),
        "difference": difference,
        "modes": sorted(set(before.values())),
        "restored": after == before,
        "raised": raised,
        "restored after the error": _modes(actor) == before,
    }


def _mix_modes(model: MegatronModel) -> Mapping[str, bool]:
    """Put everything into training mode but the first layer's attention."""
    for chunk in model.chunks:
        chunk.train()
    next(m for name, m in model.chunks[0].named_modules() if name.endswith("layers.0.self_attention")).eval()
    return _modes(model)


def _modes(model: MegatronModel) -> dict[str, bool]:
    return {name: module.training for chunk in model.chunks for name, module in chunk.named_modules()}


def _raises_half_way(model: MegatronModel, batch: mcore_compat.contracts.Batch) -> bool:
    seen = []

    def output(logits: torch.Tensor, microbatch: mcore_compat.contracts.Batch) -> dict[str, torch.Tensor]:
        seen.append(logits)
        if len(seen) == 2:
            raise ZeroDivisionError
        return {}

    try:
        model.evaluate(batch, 1, output)
    except ZeroDivisionError:
        return len(seen) == 2
    return False


def _logprobs(logits: torch.Tensor, batch: mcore_compat.contracts.Batch) -> torch.Tensor:
    targets = batch["tokens"][:, 1:, None]
    return logits[:, :-1].float().log_softmax(-1).gather(-1, targets)[..., 0]


def _warnings(work: Callable[[], object]) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        work()
    return [str(warning.message) for warning in caught if "dropout" in str(warning.message)]
