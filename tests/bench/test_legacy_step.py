"""What legacy mode costs a program that uses no redirected name."""

from __future__ import annotations

import pytest

from tests.launch import run_ranks

ROUNDS, PAIRS = 6, 9
LIMIT = 1.01


@pytest.mark.releases("0.19.2")
def test_at_most_one_per_cent_slower(release: str) -> None:
    [ratios] = run_ranks("tests.bench.legacy_step:race", ROUNDS, PAIRS, LIMIT, release=release, timeout=280)
    print(f"{release}: {ratios}")
    assert min(ratios) <= LIMIT
