"""Curve parity: one process in fp32 draws the same curves on every release, to the last bit."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from mcore_compat.matrix.cells import Cell
from mcore_compat.matrix.curves import agreement, deviations
from mcore_compat.matrix.table import releases
from tests.launch import run_ranks

NEWEST = releases()[-1].version
SUPERVISED_STEPS, WARM_UP_STEPS, PPO_STEPS = 10, 3, 1
LOSS = {"plain": {"loss": [3.0, 2.0, 1.0]}}


@cache
def curves(release: str) -> dict[str, Any]:
    lengths = SUPERVISED_STEPS, WARM_UP_STEPS, PPO_STEPS
    [found] = run_ranks("tests.matrix.programs.curves:curves", *lengths, release=release, timeout=280)
    return dict(found)


@pytest.mark.sampled("0.4.0")
def test_the_curves_are_those_of_the_newest_release(release: str) -> None:
    assert len(curves(NEWEST)["ppo"]) > 30
    assert deviations(curves(release), curves(NEWEST)) == []


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ([3.0, 2.0000000000000004, 1.0], "plain, loss, step 1: 2.0000000000000004 instead of 2.0"),
        ([3.0, 2.0], "plain, loss, step 2: None instead of 1.0"),
        ([], "plain, loss, step 0: None instead of 3.0"),
    ],
)
def test_the_first_other_value_is_named(found: list[float], said: str) -> None:
    assert [str(deviation) for deviation in deviations({"plain": {"loss": found}}, LOSS)] == [said]


def test_a_run_with_other_curves_has_failed() -> None:
    cells = {
        "old": Cell("passed", passed=1, series={"plain": {"loss": [3.0, 2.0, 1.5]}}),
        "gone": Cell("skipped", reason="no wheel"),
        "same": Cell("passed", passed=1, series=LOSS),
        "new": Cell("passed", passed=1, series=LOSS),
    }
    judged = agreement(cells, "new")
    assert {name: cell.status for name, cell in judged.items() if cell != cells[name]} == {"old": "failed"}
    assert judged["old"].reason.startswith("1 curves are not those of new: plain, loss, step 2")


def test_nothing_to_compare_with_is_no_success() -> None:
    cells = {"old": Cell("passed", passed=1, series=LOSS), "new": Cell("skipped", reason="no wheel")}
    assert agreement(cells, "new")["old"].status == "failed"
