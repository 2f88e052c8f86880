"""Two equal models in one process: one stepped through mcore_compat, one by the release's own calls."""

from __future__ import annotations

import gc
import os
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch

import mcore_compat
from mcore_compat.contracts import Batch, LossTerm, OptimizerSettings

SIZES = {"num_layers": 4, "hidden_size": 128, "num_attention_heads": 4}
VOCAB, ROWS, LENGTH, MICROBATCHES = 512, 4, 128, 2
FIELDS: dict[str, Any] = {"use_cpu_initialization": True, "hidden_dropout": 0.0, "attention_dropout": 0.0}
LR, CLIP = 1e-4, 1.0

# One optimizer step; returns the gradient norm.
Step = Callable[[], float]


def race(rounds: int, pairs: int, limit: float) -> dict[str, list[float]]:
    """Return both gradient norms of the first step, the seconds of the last pair, and each round's median ratio.

    Each round builds both models anew, in turn: where a model lies in memory alone makes its steps some per cent
    faster or slower, for as long as it lives. The first round within ``limit`` is the last.
    """
    warnings.simplefilter("ignore")
    mcore_compat.prepare("cpu")
    mcore_compat.init_parallel()
    mcore_compat.seed(1)
    ratios: list[float] = []
    while len(ratios) < rounds and not any(ratio <= limit for ratio in ratios):
        ours, theirs = _contestants(upstream_first=len(ratios) % 2 == 1)
        norms = [ours(), theirs()]
        ours(), theirs()
        measured = _measured(ours, theirs, pairs)
        ratios.append(statistics.median(a / b for a, b in measured))
    return {"norms": norms, "seconds": list(measured[-1]), "ratios": ratios}


def _contestants(*, upstream_first: bool) -> tuple[Step, Step]:
    built = {build: build() for build in ((_by_upstream, _through_mcore_compat)[:: 1 if upstream_first else -1])}
    return built[_through_mcore_compat], built[_by_upstream]


def _measured(ours: Step, theirs: Step, pairs: int) -> list[tuple[float, float]]:
    gc.collect()
    gc.disable()
    try:
        return [_pair(ours, theirs, number) for number in range(pairs)]
    finally:
        gc.enable()


def _pair(ours: Step, theirs: Step, number: int) -> tuple[float, float]:
    """Take turns at going first, so that what a step leaves in the caches favours nobody."""
    if number % 2:
        return tuple(reversed((_seconds(theirs), _seconds(ours))))
    return _seconds(ours), _seconds(theirs)


def _seconds(step: Step) -> float:
    # A step neither waits nor has threads: processor time is what it takes on a machine that is not busy.
    started = time.process_time()
    step()
    return time.process_time() - started


def _microbatches() -> list[Batch]:
    generator = torch.Generator().manual_seed(1)
    return [{"tokens": torch.randint(VOCAB, (ROWS, LENGTH), generator=generator)} for _ in range(MICROBATCHES)]


def _summed_loss(logits: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten(), reduction="sum")


def _through_mcore_compat() -> Step:
    chunks = mcore_compat.gpt_model(_config(), vocab_size=VOCAB, max_sequence_length=LENGTH)
    _draw(chunks[0])
    chunks = mcore_compat.wrap_data_parallel(chunks)
    optimizer = mcore_compat.build_optimizer(OptimizerSettings(lr=LR, weight_decay=0.0, clip_grad=CLIP), chunks)
    microbatches = _microbatches()
    count = torch.tensor(ROWS * LENGTH)

    def loss(logits: torch.Tensor, batch: Batch) -> LossTerm:
        return LossTerm(_summed_loss(logits, batch["tokens"]), count)

    def step() -> float:
        mcore_compat.zero_grad(chunks, optimizer)
        mcore_compat.forward_backward(chunks, microbatches, loss, optimizer=optimizer)
        return float(optimizer.step().grad_norm)

    return step


def _by_upstream() -> Step:
    from megatron.core.distributed import finalize_model_grads
    from megatron.core.pipeline_parallel import get_forward_backward_func

    model = _wrapped(_upstream_model())
    optimizer = _upstream_optimizer(model)
    model.config.finalize_model_grads_func = finalize_model_grads
    microbatches = _microbatches()
    positions = torch.arange(LENGTH)[None].expand(ROWS, LENGTH)
    mask = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)[None, None]

    def forward_step(data: Iterator[Batch], chunk: Any) -> Any:
        tokens = next(data)["tokens"]

        def loss(logits: torch.Tensor) -> Any:
            mean = _summed_loss(logits, tokens) / (ROWS * LENGTH)
            return mean, {"loss": mean.detach().clone()}

        return chunk(tokens, positions, mask), loss

    def step() -> float:
        model.zero_grad_buffer()
        optimizer.zero_grad()
        results = get_forward_backward_func()(
            forward_step_func=forward_step,
            data_iterator=iter(microbatches),
            model=model,
            num_microbatches=MICROBATCHES,
            seq_length=LENGTH,
            micro_batch_size=ROWS,
            forward_only=False,
        )
        sum(result["loss"].item() for result in results)
        return float(optimizer.step()[1])

    return step


def _upstream_model() -> Any:
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec

    model = GPTModel(
        config=_config(),
        transformer_layer_spec=get_gpt_layer_local_spec(),
        vocab_size=VOCAB,
        max_sequence_length=LENGTH,
        position_embedding_type="rope",
    )
    _draw(model)
    return model


def _wrapped(model: Any) -> Any:
    from megatron.core import distributed, parallel_state

    if hasattr(distributed, "DistributedDataParallelConfig"):
        settings = distributed.DistributedDataParallelConfig(grad_reduce_in_fp32=True)
        return distributed.DistributedDataParallel(model.config, settings, model)
    return distributed.DistributedDataParallel(
        model.config,
        model,
        data_parallel_group=parallel_state.get_data_parallel_group(),
        accumulate_allreduce_grads_in_fp32=True,
        overlap_grad_reduce=False,
        use_distributed_optimizer=False,
    )


def _upstream_optimizer(model: Any) -> Any:
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer

    config = OptimizerConfig(optimizer="adam", lr=LR, weight_decay=0.0, clip_grad=CLIP, params_dtype=torch.float32)
    optimizer = get_megatron_optimizer(config, [model])
    for group in optimizer.param_groups:  # else set by upstream's scheduler
        group["lr"] = LR
    return optimizer


def _config() -> Any:
    """The settings of both: another algorithm in a layer is no cost of ours."""
    for name in [name for name in os.environ if name.startswith("NVTE_")]:  # a second model asserts that there is none
        del os.environ[name]
    return mcore_compat.transformer_config(**SIZES, **FIELDS)


@torch.no_grad()
def _draw(model: torch.nn.Module) -> None:
    generator = torch.Generator().manual_seed(1)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.02)
