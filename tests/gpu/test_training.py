"""The real Megatron trains on CUDA, and computes there what it computes on the CPU."""

from __future__ import annotations

import json

import pytest

from tests.launch import launch, run_ranks

pytestmark = pytest.mark.gpu

TRAIN = "tests.gpu.programs:train"


def test_fp32_equals_the_cpu(release: str) -> None:
    [gpu] = run_ranks(TRAIN, "cuda", "fp32", release=release)
    [cpu] = run_ranks(TRAIN, "cpu", "fp32", release=release)
    assert (gpu["device"], cpu["device"]) == ("cuda", "cpu")
    assert gpu["losses"] == pytest.approx(cpu["losses"], rel=1e-3)
    assert gpu["norms"] == pytest.approx(cpu["norms"], rel=1e-2)


def test_bf16_learns(release: str) -> None:
    [gpu] = run_ranks(TRAIN, "cuda", "bf16", release=release)
    assert gpu["losses"][-1] < 0.8 * gpu["losses"][0]


def test_ppo_updates_the_actor(release: str) -> None:
    command = ("demo", "--steps", "2", "--json", "trainer.device=cuda")
    [outcome] = launch("mcore_compat", *command, release=release, timeout=280)
    assert outcome.returncode == 0, str(outcome)
    steps = json.loads(outcome.stdout.splitlines()[-1])["steps"]
    assert steps[0]["critic/kl"] == 0.0
    assert steps[-1]["critic/kl"] > 0.0
    assert all(step["actor/param_change"] > 0.0 for step in steps)
