"""A critic of a tied configuration, on one rank and on two pipeline stages."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch

import mcore_compat
from mcore_compat import Groups
from mcore_compat.weights import read_architecture
from tests.contract.programs.t0 import DISTRIBUTED, LENGTH, VOCABULARY, Job, Trainee, compare, enter, named, values


def one_process(steps: dict[str, Any], folder: Path) -> dict[str, Any]:
    """A critic of a tied configuration in one process: its embedding and its head are two tensors."""
    enter()
    trainee = Trainee(Job(head="value", data_parallel=DISTRIBUTED))
    trainee.train(values(), 4)
    found = trainee.parameters()
    embedding, head = found["embedding.word_embeddings.weight"], found["output_layer.weight"]
    begin = embedding.data_ptr()
    return {
        "shape": list(head.shape),
        "inside the embedding": begin <= head.data_ptr() < begin + embedding.numel() * embedding.element_size(),
        "changed": trainee.changed(),
        "parameters": len(found),
    }


def pipeline(steps: dict[str, Any], folder: Path) -> dict[str, Any]:
    """One step of a critic of a tied configuration on two stages, then a language model loaded into a fresh one."""
    started = time.monotonic()
    here = enter(pp=2)
    found = compare("critic", 2, steps)
    trainee = Trainee(Job(head="value"))
    trainee.accumulate(values(), 2)
    head = dict(trainee.parameters()).get("output_layer.weight")
    gradient = 0.0 if head is None else head.main_grad.abs().max().item()
    trainee.optimizer.step()
    return {
        "stage": here.pp.rank,
        "step": found,
        "head": None if head is None else list(head.shape),
        "gradient": gradient,
        "head changed": head is not None and not torch.equal(head, trainee.initial["output_layer.weight"]),
        "embedding": "embedding.word_embeddings.weight" in trainee.parameters(),
        "seen": trainee.seen,
        **_load_language_model(folder, here),
        "seconds": time.monotonic() - started,
    }


def _load_language_model(folder: Path, here: Groups) -> dict[str, Any]:
    architecture = read_architecture(folder)
    mcore_compat.seed(6)
    chunks = mcore_compat.gpt_model(
        mcore_compat.transformer_config(**architecture.config_fields()),
        vocab_size=VOCABULARY,
        max_sequence_length=LENGTH,
        head="value",
        share_embeddings=architecture.tied,
    )
    before = {name: parameter.detach().clone() for name, parameter in named(chunks)}
    report = mcore_compat.load_hf(folder, chunks, here)
    same = {name for name, parameter in named(chunks) if torch.equal(parameter, before[name])}
    return {
        "new": list(report.newly_initialized),
        "unexpected": list(report.unexpected),
        "loaded": len(report.loaded),
        "parameters": len(before),
        "head kept": "output_layer.weight" in same,
    }
