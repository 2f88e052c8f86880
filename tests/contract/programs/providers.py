"""Providers with different arguments, and the optimizer's conditions on parameters, on two data-parallel ranks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

import mcore_compat
from mcore_compat import DataParallelSettings, McoreCompatError, OptimizerSettings
from tests.contract.programs.t0 import OVERLAPPED, Job, Trainee, bare_model, buckets, eight_rows, enter
from tests.contract.programs.toy import Toy, refusal

DECAY = OptimizerSettings(
    lr=1e-2,
    eps=1.0,
    weight_decay=0.1,
    clip_grad=0.0,
    no_weight_decay_cond=lambda name, parameter: name.endswith(".bias"),
    scale_lr_cond=lambda name, parameter: name.startswith("output_layer."),
    lr_mult=0.0,
)
SMALL_BUCKETS = replace(OVERLAPPED, grad_reduce_in_fp32=True)
HEAD = "output_layer.weight"


def one_step(steps: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Wrapped in small buckets and trained one step with decay and a frozen head, for each provider."""
    enter()
    sharded = replace(SMALL_BUCKETS, use_distributed_optimizer=True)
    expected = _expected(_provided(_stages, SMALL_BUCKETS))
    return {
        "stages": _report(_provided(_stages, SMALL_BUCKETS), expected),
        "virtual": _report(_provided(_virtual, sharded), expected),
        "anything": _report(_provided(_anything, SMALL_BUCKETS), expected),
        "flavour": refusal(lambda: mcore_compat.build_model(_flavour)),
    }


def flags(steps: dict[str, Any], folder: Path) -> dict[str, Any]:
    """What a provider is told on each stage and for each chunk."""
    told: dict[str, Any] = {}
    for name, sizes in {"pp": {"pp": 2}, "vpp": {"pp": 2, "vpp": 2}}.items():
        try:
            enter(**sizes)
        except McoreCompatError as error:
            told[name] = type(error).__name__
            continue
        calls: list[list[Any]] = []
        mcore_compat.build_model(_recording(calls))
        told[name] = calls
    return told


def _provided(provider: Callable[..., Any], settings: DataParallelSettings) -> Trainee:
    job = Job(tied=False, data_parallel=settings, settings=DECAY)
    return Trainee(job, mcore_compat.build_model(provider))


def _expected(trainee: Trainee) -> dict[str, torch.Tensor]:
    """Adam's first step with decoupled decay, from the gradients: bias-corrected moments are g and g squared."""
    trainee.accumulate(eight_rows(), 2)
    weights = {}
    for name, parameter in trainee.parameters().items():
        old, gradient = trainee.initial[name], parameter.main_grad
        decay = 0.0 if name.endswith(".bias") else DECAY.weight_decay
        rate = 0.0 if name == HEAD else DECAY.lr
        weights[name] = old - rate * (gradient / (gradient.abs() + DECAY.eps) + decay * old)
    return weights


def _report(trainee: Trainee, expected: dict[str, torch.Tensor]) -> dict[str, Any]:
    trainee.train(eight_rows(), 2)
    found = trainee.parameters()
    return {
        "told": mcore_compat.unwrap(trainee.chunks)[0].told,
        "buckets": buckets(trainee.chunks),
        "error": max((parameter - expected[name]).abs().max().item() for name, parameter in found.items()),
        "still": [name for name, parameter in found.items() if torch.equal(parameter, trainee.initial[name])],
        "decay": min((DECAY.lr * DECAY.weight_decay * old).abs().max().item() for old in trainee.initial.values()),
    }


def _stages(pre_process: bool, post_process: bool) -> Any:
    return _t0_of_a_user([pre_process, post_process])


def _virtual(pre_process: bool = False, post_process: bool = False, vp_stage: int | None = 7) -> Any:
    return _t0_of_a_user([pre_process, post_process, vp_stage])


def _anything(**keywords: Any) -> Any:
    return _t0_of_a_user([keywords["pre_process"], keywords["post_process"], keywords["vp_stage"]])


def _flavour(pre_process: bool, post_process: bool, flavour: str) -> Any:
    raise AssertionError(f"called with {pre_process}, {post_process}, {flavour}")


def _t0_of_a_user(flags: list[Any]) -> Any:
    model = mcore_compat.unwrap(bare_model(Job(tied=False)))[0]
    model.told = flags
    return model


def _recording(calls: list[list[Any]]) -> Callable[..., Any]:
    def provider(pre_process: bool, post_process: bool, vp_stage: int | None) -> Any:
        calls.append([pre_process, post_process, vp_stage])
        return Toy()

    return provider
