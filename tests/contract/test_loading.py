"""Case C02: weights loaded after the optimizer was built are those that the next step starts from."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.conftest import Found

OPTIMIZERS = ("distributed", "plain")


@pytest.fixture
def result(found: Found, release: str) -> dict[str, Any]:
    (result,) = found(release, 1, "loading.loading")
    return dict(result)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize(("precision", "rounding"), [("bf16", 1e-3), ("fp32", 2e-6)])
def test_loading_refreshes_the_main_parameters(
    result: dict[str, Any], precision: str, rounding: float, optimizer: str
) -> None:
    verdict = result[f"{precision} {optimizer}"]["told"]
    assert verdict["updated"]
    assert verdict["to new"] < rounding
    assert verdict["to old"] > 0.1


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_weights_overwritten_by_hand_are_an_error_before_the_step(result: dict[str, Any], optimizer: str) -> None:
    verdict = result[f"bf16 {optimizer}"]["by hand"]
    assert verdict.get("error") == "StaleParameter", verdict
    assert "disagree" in verdict["text"]
