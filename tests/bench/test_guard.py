"""The guard that is on by default, against the step that it watches."""

from __future__ import annotations

import pytest

from tests.launch import run_ranks

STEPS = 3
LIMIT = 0.01


@pytest.mark.releases("0.19.2")
def test_the_guard_costs_at_most_one_per_cent_of_a_step(release: str) -> None:
    [found] = run_ranks("tests.bench.guard_cost:cost", STEPS, release=release, timeout=280)
    assert found["elements"] >= 50e6
    print(f"{release}: step {found['step']:.3f} s, guard {found['guard']:.4f} s, {found['guard'] / found['step']:.2%}")
    assert found["guard"] <= LIMIT * found["step"]
