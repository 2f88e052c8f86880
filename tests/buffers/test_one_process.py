"""Planned layouts against built ones, and training whose buffers are made, freed and restored on the way."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from tests.launch import run_ranks

pytestmark = pytest.mark.sampled("0.4.0", "0.6.0", "0.12.3", "0.19.2")

EXAMPLES = 300
JOBS = ("fp32", "bf16", "fp32 distributed", "bf16 distributed")
PARAMETERS = 27
# Buckets of these releases may begin where the ranks that share them cannot divide them.
TIED_REFUSED = ("0.6.0", "0.7.0", "0.8.0")
Found = Callable[[str], dict[str, Any]]


@pytest.fixture(scope="module")
def found() -> Found:
    """What a release says, asked once."""

    def ask(release: str) -> dict[str, Any]:
        [answer] = run_ranks("tests.buffers.programs:one_process", release, EXAMPLES, release=release, timeout=280)
        return dict(answer)

    return cache(ask)


def test_every_layout_is_the_planned_one(found: Found, release: str) -> None:
    counts = found(release)["layouts"]
    assert counts["cases"] >= EXAMPLES
    assert (counts["refused"] > 0) == (release in TIED_REFUSED)


@pytest.mark.parametrize("job", JOBS)
def test_training_is_not_disturbed(found: Found, release: str, job: str) -> None:
    moved = found(release)["moved"][job]
    assert moved["changed"] == PARAMETERS
    assert moved["equal"], "a step after moving everything about is not the step without it"


@pytest.mark.parametrize("job", JOBS)
def test_views_are_the_parameters_themselves(found: Found, release: str, job: str) -> None:
    moved = found(release)["moved"][job]
    assert moved["views"] == PARAMETERS
    assert moved["views are the parameters"]
    assert moved["in place"]
    assert moved["offsets"]
    assert moved["same storage"], "a second call made another buffer"
    assert "is not the flat buffer" in moved["stale"]


@pytest.mark.parametrize("job", JOBS)
def test_memory_is_freed_and_comes_back(found: Found, release: str, job: str) -> None:
    moved = found(release)["moved"][job]
    sizes = moved["sizes"]
    assert all(size > 0 for size in sizes["before"].values())
    assert sizes["away"] == dict.fromkeys(sizes["before"], 0)
    assert sizes["after"] == sizes["before"]
    assert sizes["freed"] >= sum(sizes["before"].values())
    assert sizes["freed again"] == 0
    assert moved["optimizer alone"] == {"params": sizes["before"]["params"], "optimizer": 0}
