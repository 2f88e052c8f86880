"""Case C02: weights loaded after the optimizer was built are those that the next step starts from."""

from __future__ import annotations

import pytest

from tests.contract.one_process import checks

OPTIMIZERS = ("distributed", "plain")


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize(("precision", "rounding"), [("bf16", 1e-3), ("fp32", 2e-6)])
def test_loading_refreshes_the_main_parameters(release: str, precision: str, rounding: float, optimizer: str) -> None:
    found = checks(release)["loading"][f"{precision} {optimizer}"]["told"]
    assert found["updated"]
    assert found["to new"] < rounding
    assert found["to old"] > 0.1


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_weights_overwritten_by_hand_are_an_error_before_the_step(release: str, optimizer: str) -> None:
    found = checks(release)["loading"][f"bf16 {optimizer}"]["by hand"]
    assert found.get("error") == "StaleParameter", found
    assert "disagree" in found["text"]
