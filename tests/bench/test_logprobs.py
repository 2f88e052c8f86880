"""Vocabulary-parallel log-probabilities and entropy against gathering all columns: both passes, TP 2."""

from __future__ import annotations

import pytest

from tests.launch import run_ranks


@pytest.fixture(scope="module")
def ranks() -> list[dict[str, float]]:
    return run_ranks("tests.rl.tensor_parallel:race", 4, 64, 8192, 5, release=None, nproc=2)


def test_faster_than_gathering(ranks: list[dict[str, float]]) -> None:
    for rank in ranks:
        assert rank["ours"] / rank["plain"] < 1.0, rank


def test_extra_memory_is_the_gradient_and_little_else(ranks: list[dict[str, float]]) -> None:
    for rank in ranks:
        assert rank["plain_memory"] > 4.0, f"the counter misses memory: {rank}"
        assert 1.0 <= rank["ours_memory"] < 1.15, rank


def test_no_extra_logits_tensor_where_their_memory_is_reused(ranks: list[dict[str, float]]) -> None:
    for rank in ranks:
        assert rank["reusing_memory"] < 0.15, rank
