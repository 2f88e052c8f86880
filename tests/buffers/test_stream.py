"""Weights stream from four ranks in whole buckets, as they are after the last step, and are those of one process."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from tests.launch import run_ranks

pytestmark = pytest.mark.sampled("0.19.2")
RANKS = 4
Found = Callable[[str], list[dict[str, Any]]]


@pytest.fixture(scope="module")
def found() -> Found:
    """What the ranks of a release say, asked once."""
    target = "tests.buffers.streaming:four_ranks"
    return cache(lambda release: run_ranks(target, release, release=release, nproc=RANKS, timeout=280))


def section(found: Found, release: str, name: str) -> list[Any]:
    if name not in found(release)[0]:
        pytest.skip(f"{release} has no {name}")
    return [rank[name] for rank in found(release)]


def test_all_ranks_stream_what_one_process_holds(found: Found, release: str) -> None:
    ranks = section(found, release, "tp and pp")
    expected = ranks[0]["one process"]
    for rank in ranks:
        assert rank["changed"] > 0, "nothing was trained"
        assert set(rank["digests"].values()) == {expected}
        assert rank["one process"] == expected
        assert rank["contiguous"]


def test_under_megatron_names_each_rank_finds_its_own_parts(found: Found, release: str) -> None:
    ranks = section(found, release, "tp and pp")
    assert all(rank["own parts"] for rank in ranks)
    assert {rank["megatron"] for rank in ranks} == {ranks[0]["one process, megatron"]}


def test_as_many_collectives_as_buckets(found: Found, release: str) -> None:
    for rank in section(found, release, "tp and pp"):
        counts = rank["counts"]
        in_two_buckets = {"broadcast": 2, "all_gather_into_tensor": 2}
        assert counts["first"] == {"all_gather_object": 1, **in_two_buckets}
        assert counts["second"] == in_two_buckets
        small = counts["small again"]
        assert small["broadcast"] == small["all_gather_into_tensor"]
        assert 2 < small["broadcast"] < rank["tensors"]
        assert counts["small"] == {"all_gather_object": 1, **small}


def test_only_those_who_want_weights_get_them(found: Found, release: str) -> None:
    ranks = section(found, release, "tp and pp")
    assert [rank["engine"] for rank in ranks] == [None, ranks[0]["one process"], None, None]
    assert [rank["chosen"] for rank in ranks] == [0, 0, ranks[2]["tensors"], 0]


def test_without_an_architecture_there_are_no_hugging_face_names(found: Found, release: str) -> None:
    for rank in section(found, release, "tp and pp"):
        assert "it was not filled by load_hf" in rank["unknown"]


def test_a_pending_gather_is_finished_first(found: Found, release: str) -> None:
    digests = {digest for rank in section(found, release, "pending gather") for digest in rank.values()}
    assert len(digests) == 1


def test_experts_come_from_all_expert_parallel_ranks(found: Found, release: str) -> None:
    ranks = section(found, release, "experts")
    assert all(rank["own parts"] for rank in ranks)
    assert len({rank["digest"] for rank in ranks}) == 1
    assert len(ranks[0]["experts"]) == 4 * 2
