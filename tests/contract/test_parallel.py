"""Layouts: groups, tied embeddings, the interleaved schedule, and one layout after another in one process (C09)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version

from tests.contract.checks import equals_reference
from tests.contract.conftest import Found
from tests.launch import run_ranks

# The first and the last stage give different elements of the tied weight to a data-parallel rank.
CUT_DIFFERENTLY = ("0.4.0", "0.5.0", "0.7.0")
FIRST_INTERLEAVED_ON_TWO_STAGES = Version("0.8.0")


def test_one_layout_after_another(found: Found, release: str) -> None:
    for rank, layouts in enumerate(found(release, 2, "layouts.layouts")):
        tp, pp, dp, cp, again = layouts
        both, alone = [0, 1], [rank]
        assert tp == again == groups(alone, tp=both, mp=both)
        assert pp == groups(alone, pp=both, mp=both)
        assert dp == groups(alone, dp=both, dp_cp=both, expert_dp=both)
        assert cp == groups(alone, cp=both, dp_cp=both, expert_dp=both)


def test_expert_groups_on_two_ranks(found: Found, release: str) -> None:
    for rank, here in enumerate(found(release, 2, "layouts.experts")):
        assert here == groups([rank], dp=[0, 1], dp_cp=[0, 1], ep=[0, 1])


def test_expert_groups_on_four_ranks(found: Found, release: str) -> None:
    for rank, here in enumerate(found(release, 4, "tied.experts")):
        pair, stride = [rank // 2 * 2, rank // 2 * 2 + 1], [rank % 2, rank % 2 + 2]
        assert (here["dp"]["ep"], here["dp"]["expert_dp"]) == (pair, stride)
        assert (here["tp"]["ep"], here["tp"]["expert_dp"]) == (stride, [rank])
        assert (here["tp"]["tp"], here["tp"]["dp"]) == (pair, stride)


@pytest.mark.parametrize("optimizer", ["plain", "distributed"])
def test_a_tied_embedding_under_pipeline_and_data_parallelism(found: Found, release: str, optimizer: str) -> None:
    ranks = [rank[optimizer] for rank in found(release, 4, "tied.step")]
    if optimizer == "distributed" and release in CUT_DIFFERENTLY:
        check_refused(ranks)
        return
    for rank in ranks:
        assert rank["error"] == ""
        equals_reference(rank["step"], norm=1e-5)
        assert rank["step"]["norm"] == ranks[0]["step"]["norm"]


def test_copies_of_a_tied_embedding_stay_equal_or_are_reported(found: Found, release: str) -> None:
    ranks = found(release, 4, "tied.copies")
    assert len({rank["digest"] for rank in ranks}) == 1
    for rank in ranks:
        assert rank["error"].startswith("StaleParameter: the copies of the tied embedding")


@pytest.mark.releases("0.7.0")
def test_a_tied_embedding_without_a_right_place_is_refused(found: Found, release: str) -> None:
    check_refused(found(release, 2, "layouts.tied_refusal"))


def test_the_interleaved_schedule(found: Found, release: str) -> None:
    check_interleaved(release, found(release, 2, "layouts.interleaved"))


def test_the_interleaved_schedule_with_everything_overlapped(found: Found, release: str) -> None:
    check_interleaved(release, found(release, 4, "tied.interleaved"))


def check_refused(ranks: list[dict[str, Any]]) -> None:
    """An error on every rank that names what does not go together."""
    for rank in ranks:
        assert rank["error"].startswith(("ConfigError", "PeerLost"))
        for cause in ("tied embedding", "pipeline", "distributed optimizer"):
            assert cause in rank["error"]


def check_interleaved(release: str, ranks: list[dict[str, Any]]) -> None:
    """Right, or refused with the first release that can."""
    for rank in ranks:
        if Version(release) < FIRST_INTERLEAVED_ON_TWO_STAGES:
            assert rank["error"].startswith("FeatureUnavailable")
            assert "interleaved schedule on 2 pipeline stages" in rank["error"]
            assert "0.8.0" in rank["error"]
        else:
            assert rank["error"] == ""
            equals_reference(rank["step"])


def groups(alone: list[int], **others: list[int]) -> dict[str, list[int]]:
    """Ranks by group; those not named hold one rank."""
    return dict.fromkeys(("tp", "pp", "dp", "dp_cp", "cp", "mp", "ep", "expert_dp"), alone) | others


@pytest.mark.sampled("0.4.0", "0.6.0", "0.19.2")
@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="threads are counted in /proc")
def test_reset_leaves_no_group_behind(release: str) -> None:
    for first, *later in run_ranks("tests.contract.programs.resets:threads", release=release, nproc=2):
        assert later == [first, first]
