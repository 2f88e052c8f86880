"""Case C14: a machine without the optional packages, or with newer ones than the release knew."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
from pathlib import Path
from typing import Any

import torch

import mcore_compat
from mcore_compat.contracts import Batch, LossTerm, OptimizerSettings
from tests.contract.programs.small_gpt import small_gpt, some_tokens
from tests.contract.programs.t0 import enter

OPTIONAL = ("transformer_engine", "apex", "triton", "pkg_resources")
_MAPPING = "megatron.core.dist_checkpointing.mapping"


def packages(steps: dict[str, Any], folder: Path) -> dict[str, Any]:
    """What is installed, what ``explain()`` says about it, and one step of the small model."""
    enter()
    mcore_compat.seed(1)
    report = mcore_compat.explain()
    return {
        "installed": [name for name in OPTIONAL if importlib.util.find_spec(name) is not None],
        "numpy": int(importlib.metadata.version("numpy").split(".")[0]),
        "setuptools": int(importlib.metadata.version("setuptools").split(".")[0]),
        "stand-ins": sorted(action.name for action in report.runtime.actions if action.kind == "stand-in"),
        "explained": str(report),
        "step": _step(),
        "coordinates": _coordinates(),
    }


def _step() -> list[Any]:
    chunks = mcore_compat.wrap_data_parallel(small_gpt())
    optimizer = mcore_compat.build_optimizer(OptimizerSettings(lr=1e-2), chunks)
    mcore_compat.zero_grad(chunks, optimizer)
    before = [parameter.detach().clone() for parameter in chunks[0].parameters()]
    mcore_compat.forward_backward(chunks, [{"tokens": some_tokens()}], _loss, optimizer=optimizer)
    updated, norm, *_ = optimizer.step()
    pairs = zip(before, chunks[0].parameters(), strict=True)
    return [updated, norm, sum(not torch.equal(old, new) for old, new in pairs)]


def _loss(logits: torch.Tensor, batch: Batch) -> LossTerm:
    total = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch["tokens"].flatten(), reduction="sum")
    return LossTerm(total, torch.tensor(batch["tokens"].numel()))


def _coordinates() -> list[list[int]] | None:
    """Ask a sharded checkpoint tensor for something that old releases compute with a name numpy 2 lacks."""
    kind = importlib.import_module(_MAPPING).ShardedTensor
    if not hasattr(kind, "local_coordinates"):
        return None
    tensor = kind("w", torch.ones(2), torch.float32, (2, 2), (2, 2), (0, 0), (1, 1), flattened_range=slice(1, 3))
    return [axis.tolist() for axis in tensor.local_coordinates()]
