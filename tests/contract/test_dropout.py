"""Case C05: dropout never reaches log-probabilities, and one warning says that it reaches updates."""

from __future__ import annotations

from tests.contract.one_process import checks


def test_evaluation_is_exact_though_the_actor_is_in_training_mode(release: str) -> None:
    found = checks(release)["dropout"]
    assert found["noise"] > 1, "dropout is not active, so nothing is tested here"
    assert found["difference"] == 0.0


def test_every_module_is_back_in_its_mode(release: str) -> None:
    found = checks(release)["dropout"]
    assert found["modes"] == [False, True]
    assert found["restored"]


def test_every_module_is_back_in_its_mode_after_an_error_half_way(release: str) -> None:
    found = checks(release)["dropout"]
    assert found["raised"]
    assert found["restored after the error"]


def test_one_warning_for_a_policy_that_trains_with_dropout(release: str) -> None:
    found = checks(release)["dropout"]["warnings"]
    assert found["none"] == found["reference"] == []
    (warning,) = found["actor"] + found["critic"]
    assert "hidden_dropout 0.1 and attention_dropout 0.1" in warning
