"""A train step through mcore_compat against the same step written on the release's own Megatron calls."""

from __future__ import annotations

import pytest

from tests.launch import run_ranks

ROUNDS, PAIRS = 6, 15
LIMIT = 1.02


@pytest.mark.releases("0.6.0", "0.19.2")
def test_at_most_two_per_cent_slower(release: str) -> None:
    [found] = run_ranks("tests.bench.train_step:race", ROUNDS, PAIRS, LIMIT, release=release, timeout=280)
    ours, theirs = found["norms"]
    assert ours == pytest.approx(theirs, rel=1e-5), "the two steps do not compute the same"
    print(f"{release}: ours {found['seconds'][0]:.3f} s, upstream {found['seconds'][1]:.3f} s, {found['ratios']}")
    assert min(found["ratios"]) <= LIMIT
