"""After ``prepare("cpu")`` a program written for GPUs trains on every release, with equal results."""

from __future__ import annotations

import json
import math
from functools import cache
from typing import Any

import pytest

from tests.launch import run_ranks

REFERENCE = "0.19.2"
WITHOUT_OPTIMIZER = ("0.4.0", "0.5.0")
GPT = {"distributed": False}
LLAMA = {"llama": True, "distributed": True}
LLAMA_BF16 = {"llama": True, "distributed": True, "bf16": True}
DROPOUT = {"dropout": 0.1, "cpu_init": False}
ONE_PROCESS = (GPT, LLAMA, LLAMA_BF16, DROPOUT)
Trained = list[dict[str, list[str]]]


@cache
def train(release: str, *cases: str, nproc: int = 1) -> list[Trained]:
    """Per rank, per case: what ``raw.train`` returns."""
    given = [json.loads(case) for case in cases]
    return run_ranks("tests.runtime.raw:train", *given, release=release, nproc=nproc, timeout=280)


def texts(*cases: dict[str, Any]) -> tuple[str, ...]:
    return tuple(json.dumps(case) for case in cases)


def test_equal_bit_for_bit_on_one_process(release: str) -> None:
    (found,) = train(release, *texts(*ONE_PROCESS))
    (expected,) = train(REFERENCE, *texts(*ONE_PROCESS))
    if release in WITHOUT_OPTIMIZER:
        assert [case["losses"][:2] for case in found] == [case["losses"][:2] for case in expected]
        assert all(0 < float.fromhex(norm) < math.inf for case in found for norm in case["norms"])
    else:
        assert found == expected


@pytest.mark.releases("0.6.0")
@pytest.mark.parametrize("layout", [{"tp": 2}, {"pp": 2}, {}], ids=["tp2", "pp2", "dp2"])
def test_equal_on_two_processes(release: str, layout: dict[str, int]) -> None:
    # From 0.16 on the weights of a gated MLP split over tensor-parallel ranks are drawn in another order.
    models = (GPT, {**GPT, "distributed": True}) if "tp" in layout else (GPT, LLAMA)
    cases = texts(*({**model, **layout} for model in models))
    found, expected = (train(version, *cases, nproc=2) for version in (release, REFERENCE))
    for case in range(len(cases)):
        for rank in range(2):
            ours, theirs = found[rank][case], expected[rank][case]
            assert values(ours["norms"]) == pytest.approx(values(theirs["norms"]), rel=1e-6)
            assert values(ours["losses"]) == pytest.approx(values(theirs["losses"]), rel=1e-6)


@pytest.mark.releases("0.8.0", "0.19.2")
def test_averaging_in_the_collective_equals_scaling_before_it(release: str) -> None:
    for distributed in (False, True):
        plain, averaged = ({"distributed": distributed, "average": flag} for flag in (False, True))
        for rank in train(release, *texts(plain, averaged), nproc=2):
            assert rank[0] == rank[1]


@pytest.mark.releases("0.9.0", "0.10.0", "0.16.1")
def test_experts_route_without_transformer_engine(release: str) -> None:
    ((found,),) = train(release, *texts({"moe": True, "llama": True}))
    losses = values(found["losses"])
    assert all(math.isfinite(value) for value in values(found["norms"]))
    assert losses[0] == pytest.approx(math.log(64), abs=0.5)


def values(hexadecimal: list[str]) -> list[float]:
    return [float.fromhex(text) for text in hexadecimal]
