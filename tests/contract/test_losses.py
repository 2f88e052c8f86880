"""One gradient and one step for every split of a batch, every layout and every release (C10)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.checks import equals_reference
from tests.contract.conftest import Found


def test_token_losses_are_weighed_by_tokens(found: Found, release: str) -> None:
    (price,) = found(release, 1, "single.hand_check")
    assert price["loss"] == price["metrics"]["again"] == 1.75
    assert price["count"] == 4.0
    assert price["gradient"] == pytest.approx(1.75, rel=1e-6)


def test_microbatches_of_any_size(found: Found, release: str) -> None:
    (splits,) = found(release, 1, "single.splits")
    for step in splits:
        equals_reference(step)


def test_the_same_numbers_on_every_release(found: Found, release: str) -> None:
    (scenarios,) = found(release, 1, "single.releases_agree")
    for step in scenarios:
        equals_reference(step)


@pytest.mark.parametrize("layout", ["data_parallel", "pipeline"])
def test_two_ranks(found: Found, release: str, layout: str) -> None:
    for rank in found(release, 2, f"layouts.{layout}"):
        for step in rank:
            equals_reference(step)


TENSOR_PARALLEL = ("one row", "all rows", "sequence", "no initial weights", "critic", "critic, sequence")


@pytest.mark.parametrize("case", TENSOR_PARALLEL)
def test_tensor_and_sequence_parallel(found: Found, release: str, case: str) -> None:
    for rank in found(release, 2, "layouts.tensor_parallel"):
        equals_reference(rank[case])


def test_gradients_are_reduced_once_per_step(found: Found, release: str) -> None:
    for rank in found(release, 2, "layouts.no_sync"):
        assert rank["four"] == rank["one"]
        assert len(rank["one"]) >= rank["buckets"] > 1


def test_context_parallel(found: Found, release: str) -> None:
    check_context_parallel(found(release, 2, "layouts.context_parallel"))


@pytest.mark.releases("0.8.0", "0.11.0", "0.13.1")
def test_context_parallel_where_upstream_scales_differently(found: Found, release: str) -> None:
    check_context_parallel(found(release, 2, "layouts.context_parallel"))


def check_context_parallel(ranks: list[dict[str, Any]]) -> None:
    """Gradients and update are those of the mean over the valid tokens of both halves."""
    for rank in ranks:
        assert rank["count"] == 36.0
        assert rank["loss"] == pytest.approx(ranks[0]["loss"])
        assert max(rank["gradients"].values()) < 1e-6
        assert max(rank["sharded update"].values()) < 1e-6
