"""Case C05: dropout never reaches log-probabilities, and one warning says that it reaches updates."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.conftest import Found


@pytest.fixture
def result(found: Found, release: str) -> dict[str, Any]:
    (result,) = found(release, 1, "dropout.dropout")
    return dict(result)


def test_evaluation_is_exact_though_the_actor_is_in_training_mode(result: dict[str, Any]) -> None:
    assert result["noise"] > 1, "dropout is not active, so nothing is tested here"
    assert result["difference"] == 0.0


def test_every_module_is_back_in_its_mode(result: dict[str, Any]) -> None:
    assert result["modes"] == [False, True]
    assert result["restored"]


def test_every_module_is_back_in_its_mode_after_an_error_half_way(result: dict[str, Any]) -> None:
    assert result["raised"]
    assert result["restored after the error"]


def test_one_warning_for_a_policy_that_trains_with_dropout(result: dict[str, Any]) -> None:
    warnings = result["warnings"]
    assert warnings["none"] == warnings["reference"] == []
    (warning,) = warnings["actor"] + warnings["critic"]
    assert "hidden_dropout 0.1 and attention_dropout 0.1" in warning
