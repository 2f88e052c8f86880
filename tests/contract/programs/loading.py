"""Case C02: weights that come after the optimizer was built."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

import mcore_compat
from mcore_compat.contracts import Batch, DataParallelSettings, LossTerm, OptimizerSettings, Precision
from mcore_compat.errors import McoreCompatError
from mcore_compat.weights import Architecture, inverse_frequencies, read_architecture
from tests.contract.programs.folders import llama_folder, normal_weights
from tests.contract.programs.small_gpt import some_tokens
from tests.contract.programs.t0 import enter

PRECISIONS: tuple[Precision, ...] = ("bf16", "fp32")


def loading(steps: dict[str, Any], folder: Path) -> dict[str, dict[str, Any]]:
    """Build, load other weights, step; for both precisions and both optimizers, with and without telling it."""
    groups = enter()
    mcore_compat.seed(1)
    old = llama_folder(Path("old"), normal_weights(0.02, seed=1), vocab_size=64)
    new = llama_folder(Path("new"), normal_weights(0.05, seed=2), vocab_size=64)
    return {
        f"{precision} {'distributed' if distributed else 'plain'}": {
            "told": _after_a_step(old, new, groups, precision, distributed=distributed, told=True),
            "by hand": _after_a_step(old, new, groups, precision, distributed=distributed, told=False),
        }
        for precision in PRECISIONS
        for distributed in (True, False)
    }


def _after_a_step(
    old: Path, new: Path, groups: mcore_compat.Groups, precision: Precision, *, distributed: bool, told: bool
) -> dict[str, Any]:
    """Distances to both folders after a tiny step, or the error in its place."""
    architecture = read_architecture(old)
    settings = DataParallelSettings(use_distributed_optimizer=distributed)
    chunks = mcore_compat.wrap_data_parallel(_build(architecture, precision, old, groups), settings=settings)
    tiny = OptimizerSettings(lr=1e-6, weight_decay=0.0, clip_grad=0.0, precision=precision)
    optimizer = mcore_compat.build_optimizer(tiny, chunks, settings)
    mcore_compat.load_hf(new, chunks, groups, optimizer=optimizer if told else None)
    mcore_compat.zero_grad(chunks, optimizer)
    mcore_compat.forward_backward(chunks, [{"tokens": some_tokens(2)}], _loss, optimizer=optimizer)
    try:
        result = optimizer.step()
    except McoreCompatError as error:
        return {"error": type(error).__name__, "text": str(error)}
    found = dict(mcore_compat.iter_weights(chunks, architecture, groups))
    return {
        "updated": result.updated,
        "to new": max(_distances(found, new)),
        "to old": max(_distances(found, old)),
    }


def _build(architecture: Architecture, precision: Precision, folder: Path, groups: mcore_compat.Groups) -> list[Any]:
    chunks = mcore_compat.gpt_model(
        mcore_compat.transformer_config(precision=precision, **architecture.config_fields()),
        vocab_size=architecture.vocab_size,
        max_sequence_length=architecture.max_positions,
        share_embeddings=architecture.tied,
        inverse_frequencies=inverse_frequencies(architecture),
    )
    mcore_compat.load_hf(folder, chunks, groups)
    return chunks


def _loss(logits: torch.Tensor, batch: Batch) -> LossTerm:
    rows = logits.flatten(0, 1).float()
    total = torch.nn.functional.cross_entropy(rows, batch["tokens"].flatten(), reduction="sum")
    return LossTerm(total, torch.tensor(batch["tokens"].numel()))


def _distances(found: dict[str, torch.Tensor], folder: Path) -> Iterator[float]:
    for name, stored in load_file(folder / "model.safetensors").items():
        yield (found[name].double() - stored.double()).abs().max().item()
