"""The curves that must be the same on every release: plain supervised training, and the PPO demo."""

from __future__ import annotations

import warnings
from pathlib import Path

import torch

import mcore_compat
from mcore_compat.cli._job import make_backend
from mcore_compat.contracts import Batch, DataParallelSettings, LossTerm, OptimizerSettings
from mcore_compat.rl.demo import DemoOptions, run_demo
from mcore_compat.rl.interrupt import StopRequest
from mcore_compat.rl.progress import Silent

VOCABULARY, LENGTH, ROWS = 32, 16, 8
# Clocks are no part of what is computed.
CLOCKS = ("timing_s/", "perf/")

Series = dict[str, list[float]]


def curves(supervised_steps: int, warm_up_steps: int, ppo_steps: int) -> dict[str, Series]:
    """Run to its series, one value per step; the warm-up is what the demo does before PPO."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    mcore_compat.prepare("cpu")
    mcore_compat.init_parallel()
    found = {"supervised": _supervised(supervised_steps)}
    mcore_compat.reset()
    return {**found, "ppo": _ppo(warm_up_steps, ppo_steps)}


def _supervised(steps: int) -> Series:
    """A small GPT learns to count; the distributed optimizer with decay and clipping, as most trainings have them."""
    mcore_compat.seed(1)
    sharded = DataParallelSettings(use_distributed_optimizer=True)
    config = mcore_compat.transformer_config(
        num_layers=2, hidden_size=32, num_attention_heads=4, hidden_dropout=0.0, attention_dropout=0.0
    )
    chunks = mcore_compat.gpt_model(config, vocab_size=VOCABULARY, max_sequence_length=LENGTH)
    chunks = mcore_compat.wrap_data_parallel(chunks, config, sharded)
    optimizer = mcore_compat.build_optimizer(OptimizerSettings(lr=3e-3), chunks, sharded)
    found: Series = {"loss": [], "gradient norm": []}
    for step in range(steps):
        mcore_compat.zero_grad(chunks, optimizer)
        loss = mcore_compat.forward_backward(chunks, _microbatches(step), _next_token, optimizer=optimizer).loss
        norm = optimizer.step().grad_norm
        found["loss"].append(loss)
        assert norm is not None
        found["gradient norm"].append(norm)
    return found


def _microbatches(step: int) -> list[dict[str, torch.Tensor]]:
    """Two of them, each row counting on from where it begins."""
    starts = torch.randint(0, VOCABULARY, (2, ROWS, 1), generator=torch.Generator().manual_seed(step))
    return [{"tokens": (start + torch.arange(LENGTH)) % VOCABULARY} for start in starts]


def _next_token(logits: torch.Tensor, batch: Batch) -> LossTerm:
    targets = batch["tokens"][:, 1:]
    loss = torch.nn.functional.cross_entropy(logits[:, :-1].transpose(1, 2), targets, reduction="sum")
    return LossTerm(loss, torch.tensor(targets.numel()))


def _ppo(warm_up_steps: int, steps: int) -> Series:
    options = DemoOptions(steps=steps, warm_up_steps=warm_up_steps, output=str(Path("demo").absolute()))
    report = run_demo(options, make_backend, world_size=1, talk=Silent(), stop=StopRequest())
    names = [name for name in report.steps[0] if not name.startswith(CLOCKS)]
    return {name: [step[name] for step in report.steps] for name in names}
