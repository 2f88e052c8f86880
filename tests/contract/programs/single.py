"""Checks in one process."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

import mcore_compat
from mcore_compat import DataParallelSettings, LossTerm, OptimizerSettings
from mcore_compat.contracts import Batch
from tests.contract.programs.t0 import (
    DISTRIBUTED,
    SMOOTH,
    Job,
    Trainee,
    compare,
    eight_rows,
    enter,
    two_batches,
)
from tests.contract.programs.toy import Price, Toy, refusal, wrapped

WARM_UP_STEPS = 10
TINY: dict[str, Any] = {"num_layers": 1, "hidden_size": 8, "num_attention_heads": 1}
GATHERING = replace(DISTRIBUTED, overlap_grad_reduce=True, overlap_param_gather=True)


def splits(steps: dict[str, Any], folder: Path) -> list[dict[str, Any]]:
    """The eight rows in microbatches of 1, 2, 4 and 8, with both kinds of optimizer."""
    enter()
    kinds = (DataParallelSettings(), DISTRIBUTED)
    return [compare("eight rows", micro, steps, data_parallel=kind) for micro in (1, 2, 4, 8) for kind in kinds]


def releases_agree(steps: dict[str, Any], folder: Path) -> list[dict[str, Any]]:
    """The other scenarios in one process of this release."""
    enter()
    return [compare("two batches", 2, steps), compare("four layers", 4, steps), compare("critic", 1, steps)]


def hand_check(steps: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Token losses [4] and [1, 1, 1] in two microbatches."""
    enter()
    losses = ([4.0, 0.0, 0.0], [1.0, 1.0, 1.0])
    rows = [torch.tensor([row]) for row in losses]
    microbatches = [{"tokens": row, "mask": (row > 0).float()} for row in rows]
    chunks = wrapped(Price)

    def loss(output: torch.Tensor, batch: Batch) -> LossTerm:
        largest = output.detach().sum(), batch["mask"].sum()
        return LossTerm((output * batch["mask"]).sum(), batch["mask"].sum(), {"again": largest})

    def forward(model: Any, batch: Batch) -> torch.Tensor:
        output: torch.Tensor = model(batch["tokens"])
        return output

    found = mcore_compat.forward_backward(chunks, microbatches, loss, forward=forward)
    gradient = mcore_compat.unwrap(chunks)[0].factor.main_grad.item()
    return {"loss": found.loss, "count": found.count, "metrics": dict(found.metrics), "gradient": gradient}


def first_steps(steps: dict[str, Any], folder: Path) -> list[dict[str, Any]]:
    """Two steps of a warm-up from 0 to 1e-2, whose scheduler moves after the optimizer."""
    enter()
    trainee = Trainee(Job(settings=OptimizerSettings(lr=1e-2, weight_decay=0.0, clip_grad=0.0)))
    found = []
    for step in range(2):
        trainee.optimizer.set_lr(1e-2 * step / WARM_UP_STEPS)
        result = trainee.train(two_batches(), 2)
        found.append({**result._asdict(), "changed": trainee.changed(), "of": len(trainee.initial)})
    return found


def step_results(steps: dict[str, Any], folder: Path) -> dict[str, Any]:
    """One step of each kind, with the norm and the zeros counted in the main gradients."""
    enter()
    sgd = replace(SMOOTH, optimizer="sgd", lr=1.0, momentum=0.0)
    return {
        "plain": _step(Job()),
        "distributed": _step(Job(data_parallel=DISTRIBUTED)),
        "free": _step(Job(settings=sgd)),
        "clipped": _step(Job(settings=replace(sgd, clip_grad=1.0))),
        "counted": _step(Job(tied=False, settings=replace(SMOOTH, log_num_zeros_in_grad=True))),
        "bf16": _step(Job(precision="bf16")),
        "overflow": _step(_overflowing()),
    }


def settings_of_later_releases(steps: dict[str, Any], folder: Path) -> dict[str, str]:
    """Errors by setting, "" where this release took it."""
    enter()
    config = mcore_compat.transformer_config(**TINY)
    model = partial(mcore_compat.gpt_model, vocab_size=8, max_sequence_length=8)
    return {
        "average_in_collective": refusal(lambda: wrapped(Toy, average_in_collective=True)),
        "check_for_nan_in_grad": refusal(lambda: wrapped(Toy, check_for_nan_in_grad=True)),
        "add_qkv_bias": refusal(lambda: mcore_compat.transformer_config(**TINY, add_qkv_bias=True)),
        "qk_layernorm": refusal(lambda: mcore_compat.transformer_config(**TINY, qk_layernorm=True)),
        "softmax_scale": refusal(lambda: mcore_compat.transformer_config(**TINY, softmax_scale=0.5)),
        "glu_linear_offset": refusal(lambda: mcore_compat.transformer_config(**TINY, glu_linear_offset=1.0)),
        "rope_scaling": refusal(lambda: model(config, rope_scaling=True)),
        "overlap_param_gather": refusal(lambda: Trainee(Job(data_parallel=GATHERING))),
        "order": refusal(lambda: enter(order="tp-cp-ep-dp-pp")),
        "create_gloo_process_groups": refusal(lambda: enter(create_gloo_process_groups=True)),
    }


def refusals(steps: dict[str, Any], folder: Path) -> dict[str, str]:
    """What every release refuses."""
    enter()
    return {
        "field": refusal(lambda: mcore_compat.transformer_config(num_layers=1, hiden_size=8)),
        "second layout": refusal(mcore_compat.init_parallel),
        "gather alone": refusal(lambda: wrapped(Toy, overlap_param_gather=True)),
        "settings for a config": refusal(lambda: mcore_compat.wrap_data_parallel([Toy()], DISTRIBUTED)),
        "other settings": refusal(lambda: mcore_compat.build_optimizer(SMOOTH, wrapped(Toy), DISTRIBUTED)),
        "other precision": refusal(lambda: mcore_compat.build_optimizer(SMOOTH, [Toy().bfloat16()])),
        "no groups": refusal(_groups_after_reset),
        "too many ranks": refusal(lambda: enter(tp=2)),
    }


def explanation(steps: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The optimizer that was chosen, as data and as printed."""
    found = mcore_compat.explain()
    optimizer = next(choice for choice in found.choices if choice.seam == "optimizer")
    return {
        "variant": optimizer.variant,
        "line": next(line for line in str(found).splitlines() if line.startswith("optimizer:")),
    }


def _step(job: Job) -> dict[str, Any]:
    trainee = Trainee(job)
    trainee.accumulate(eight_rows(), 4)
    gradients = [parameter.main_grad.detach().clone() for parameter in trainee.parameters().values()]
    result = trainee.optimizer.step()
    moved = [(p - trainee.initial[name]).float() for name, p in trainee.parameters().items()]
    return {
        **result._asdict(),
        "norm of gradients": _norm(gradients),
        "zeros in gradients": sum(int((gradient == 0).sum()) for gradient in gradients),
        "moved": _norm(moved),
        "changed": trainee.changed(),
        "types": [str(type(value).__name__) for value in result],
    }


def _norm(tensors: list[torch.Tensor]) -> float:
    return float(torch.stack([tensor.double().square().sum() for tensor in tensors]).sum().sqrt())


def _overflowing() -> Job:
    return Job(precision="fp16", settings=replace(SMOOTH, initial_loss_scale=2.0**60))


def _groups_after_reset() -> None:
    mcore_compat.reset()
    mcore_compat.groups()
