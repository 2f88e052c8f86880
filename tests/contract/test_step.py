"""One result of a step on every release, and what it says (C03, C11)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.conftest import Found

EXACT_KINDS = ("plain", "distributed", "free", "clipped", "counted", "bf16")


@pytest.fixture
def results(found: Found, release: str) -> dict[str, Any]:
    (steps,) = found(release, 1, "single.step_results")
    return dict(steps)


def test_a_rate_of_zero_is_a_notice_and_no_alarm(found: Found, release: str) -> None:
    ((first, second),) = found(release, 1, "single.first_steps")
    assert (first["updated"], first["notices"], first["changed"]) == (True, ["lr_zero"], 0)
    assert (second["updated"], second["notices"], second["changed"]) == (True, [], 27)
    assert first["of"] == 27


@pytest.mark.parametrize("kind", EXACT_KINDS)
def test_the_norm_is_that_of_the_main_gradients(results: dict[str, Any], kind: str) -> None:
    step = results[kind]
    assert step["updated"] is True
    assert step["grad_norm"] == pytest.approx(step["norm of gradients"], rel=1e-5)
    assert step["grad_norm"] > 1.0
    assert step["types"][:2] == ["bool", "float"]


@pytest.mark.parametrize("kind", ["plain", "distributed"])
def test_one_step_moves_every_parameter(results: dict[str, Any], kind: str) -> None:
    assert results[kind]["changed"] == 27
    assert results[kind]["notices"] == []


def test_clipping_scales_the_update_and_reports_the_norm_before(results: dict[str, Any]) -> None:
    assert results["clipped"]["grad_norm"] == pytest.approx(results["free"]["grad_norm"], rel=1e-6)
    assert results["free"]["moved"] == pytest.approx(results["free"]["grad_norm"], rel=1e-5)
    assert results["clipped"]["moved"] == pytest.approx(1.0, rel=1e-5)


def test_zeros_are_counted_where_asked_for_and_absent_elsewhere(results: dict[str, Any]) -> None:
    counted = results["counted"]
    assert counted["zeros"] == counted["zeros in gradients"] > 0
    assert counted["types"][2] == "int"
    assert all(results[kind]["zeros"] is None for kind in EXACT_KINDS if kind != "counted")


def test_an_overflow_is_no_update(results: dict[str, Any]) -> None:
    step = results["overflow"]
    assert (step["updated"], step["grad_norm"], step["changed"]) == (False, None, 0)
