"""A few supervised steps on the Megatron that is there, with everything they compute written to a folder."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from mcore_compat.bridge.model import MegatronModel
from mcore_compat.bridge.ranks import split_rows
from mcore_compat.contracts import Batch, LossTerm, VocabShard
from mcore_compat.rl.warmup import cross_entropy
from mcore_compat.seams.data_parallel import zero_grad
from mcore_compat.seams.model import unwrap
from mcore_compat.seams.optimizer_state import OptimizerState
from mcore_compat.seams.schedule import forward_backward

FACTS = "facts.json"
STAGES = "stages.jsonl"
MICROBATCHES = 2
Tensors = dict[str, torch.Tensor]


def trace(model: MegatronModel, batches: Iterable[Batch], vocab: VocabShard, folder: Path) -> None:
    """Train on each batch once and write what came of it.

    Args:
        model: With an optimizer, on one process.
        batches: As :func:`mcore_compat.rl.experience.pack` lays them out.
        vocab: The vocabulary slice of the logits.
        folder: Gets ``stages.jsonl``, one line per file of tensors in the order in which they were computed, and
            ``facts.json``, the plain attributes of every module and parameter.
    """
    (folder / FACTS).write_text(json.dumps(_facts(model)), encoding="utf-8")
    stages = Stages(folder)
    stages.add(0, "initial weights", _weights(model))
    for step, batch in enumerate(batches, 1):
        for stage, tensors in _step(model, batch, vocab):
            stages.add(step, stage, tensors)


class Stages:
    """Writes tensors, one file per stage."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0

    def add(self, step: int, stage: str, tensors: Mapping[str, torch.Tensor]) -> None:
        """Write one stage and its place in the order."""
        name = f"{self._count:03d}.safetensors"
        self._count += 1
        save_file({key: value.detach().contiguous().clone() for key, value in tensors.items()}, self._folder / name)
        row = {"step": step, "stage": stage, "file": name, "names": list(tensors)}
        with (self._folder / STAGES).open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


def _step(model: MegatronModel, batch: Batch, vocab: VocabShard) -> Iterator[tuple[str, Tensors]]:
    optimizer, state = model.optimizer, OptimizerState(model.optimizer)  # type: ignore[arg-type]
    assert optimizer is not None
    logits: Tensors = {}
    supervised = cross_entropy(vocab)

    def loss(output: torch.Tensor, microbatch: Batch) -> LossTerm:
        logits[f"microbatch {len(logits)}"] = output.detach().clone()
        return supervised(output, microbatch)

    zero_grad(model.chunks, optimizer)
    rows = len(batch["tokens"]) // MICROBATCHES
    with _module_outputs(model) as outputs:
        found = forward_backward(model.chunks, split_rows(batch, rows), loss, optimizer=optimizer)
    yield "module outputs", outputs
    yield "logits", logits
    yield "loss", {"loss": torch.tensor([found.loss], dtype=torch.float64)}
    yield "gradients", {name: p.main_grad for name, p in model.named_parameters() if hasattr(p, "main_grad")}
    done = optimizer.step()
    optimizer.finish_param_sync()
    yield "gradient norm", {"gradient norm": torch.tensor([done.grad_norm or 0.0], dtype=torch.float64)}
    yield "updated parameters", _weights(model)
    yield "optimizer state", _moments(model, state)


def _weights(model: MegatronModel) -> Tensors:
    return dict(model.named_parameters())


def _moments(model: MegatronModel, state: OptimizerState) -> Tensors:
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return {
        f"{names[id(piece.parameter)]} {moment}": state.moment(piece, moment)
        for piece in state.pieces
        for moment in state.moments
    }


@contextmanager
def _module_outputs(model: MegatronModel) -> Iterator[Tensors]:
    """What each module returned first, in the order of returning: inner modules before outer ones."""
    outputs: Tensors = {}

    def keep(name: str) -> Any:
        def hook(module: Any, inputs: Any, output: Any) -> None:
            first = output[0] if isinstance(output, tuple) else output
            if torch.is_tensor(first) and name not in outputs:
                outputs[name] = first.detach().clone()

        return hook

    handles = [module.register_forward_hook(keep(name)) for name, module in _modules(model).items()]
    try:
        yield outputs
    finally:
        for handle in handles:
            handle.remove()


def _modules(model: MegatronModel) -> dict[str, Any]:
    (whole,) = unwrap(model.chunks)
    return {name: module for name, module in whole.named_modules() if name}


def _facts(model: MegatronModel) -> dict[str, dict[str, Any]]:
    """Module or parameter to its plain attributes."""
    facts = {name: {"class": type(module).__name__, **_plain(vars(module))} for name, module in _modules(model).items()}
    (whole,) = unwrap(model.chunks)
    facts["config"] = _plain(vars(whole.config))
    groups = _groups(model)
    for name, parameter in model.named_parameters():
        facts[name] = {"requires_grad": parameter.requires_grad, **groups.get(id(parameter), {})}
    return facts


def _groups(model: MegatronModel) -> dict[int, dict[str, Any]]:
    """Parameter to the numbers of its optimizer group, such as ``weight_decay``."""
    assert model.optimizer is not None
    pieces = {id(piece.main): id(piece.parameter) for piece in OptimizerState(model.optimizer).pieces}
    return {
        pieces[id(main)]: {name: group[name] for name in ("lr", "weight_decay", "betas", "eps") if name in group}
        for group in model.optimizer.param_groups
        for main in group["params"]
        if id(main) in pieces
    }


def _plain(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: value
        for name, value in attributes.items()
        if not name.startswith("_") and isinstance(value, bool | int | float | str | None)
    }
