"""What UpdateGuard adds to a step of 24 layers, timed inside the very steps that it watches."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

import torch

import mcore_compat
from mcore_compat import DataParallelSettings
from mcore_compat.checks.update import UpdateGuard
from mcore_compat.contracts import Batch, LossTerm, OptimizerSettings
from tests.bench.stream_race import FIELDS, SIZES, VOCABULARY

ROWS, LENGTH = 1, 32


def cost(steps: int) -> dict[str, float]:
    """Elements of the model; processor seconds of a step and of the guard around it, each the best of some."""
    warnings.simplefilter("ignore")
    mcore_compat.prepare("cpu")
    mcore_compat.init_parallel()
    mcore_compat.seed(1)
    config = mcore_compat.transformer_config(precision="bf16", **SIZES, **FIELDS)
    chunks = mcore_compat.gpt_model(config, vocab_size=VOCABULARY, max_sequence_length=LENGTH)
    for parameter in chunks[0].parameters():
        parameter.data.normal_(std=0.02)
    elements = sum(parameter.numel() for parameter in chunks[0].parameters())
    chunks = mcore_compat.wrap_data_parallel(chunks, settings=DataParallelSettings(use_distributed_optimizer=True))
    optimizer = mcore_compat.build_optimizer(OptimizerSettings(lr=1e-4, precision="bf16"), chunks)
    # Around upstream's own optimizer: ours makes some of the checks itself.
    guard = UpdateGuard(chunks, optimizer.inner)
    times = [_timed(chunks, optimizer, guard) for _ in range(steps)]
    step, guarded = (min(column) for column in zip(*times, strict=True))
    return {"elements": elements, "step": step, "guard": guarded}


def _timed(chunks: list[Any], optimizer: Any, guard: UpdateGuard) -> tuple[float, float]:
    batch = {"tokens": torch.randint(VOCABULARY, (ROWS, LENGTH))}
    mcore_compat.zero_grad(chunks, optimizer)
    backward = _seconds(lambda: mcore_compat.forward_backward(chunks, [batch], _loss, optimizer=optimizer))
    before = _seconds(guard.__enter__)
    update = _seconds(optimizer.step)
    after = _seconds(lambda: guard.__exit__(None, None, None))
    return backward + update, before + after


def _loss(logits: torch.Tensor, batch: Batch) -> LossTerm:
    total = torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), batch["tokens"].flatten(), reduction="sum")
    return LossTerm(total, torch.tensor(ROWS * LENGTH))


def _seconds(call: Callable[[], Any]) -> float:
    started = time.process_time()
    call()
    return time.process_time() - started
