"""Case C08: a padded vocabulary on two tensor-parallel ranks shows nowhere outside the model."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.conftest import Found

REAL, PADDED, WRONG = 50, 64, 57


@pytest.fixture
def ranks(found: Found, release: str) -> list[dict[str, Any]]:
    return found(release, 2, "vocabulary.padded_vocabulary")


def test_log_probabilities_and_entropy_are_those_of_the_real_columns(ranks: list[dict[str, Any]]) -> None:
    for found in ranks:
        assert found["local rows"] == PADDED // 2
        assert max(found["errors"].values()) < 1e-5


def test_no_padding_index_is_ever_drawn(ranks: list[dict[str, Any]]) -> None:
    for found in ranks:
        assert found["drawn"] == {"tokens": 1024, "distinct": REAL, "largest": REAL - 1}


def test_the_export_has_the_loaded_rows(ranks: list[dict[str, Any]]) -> None:
    for found in ranks:
        assert found["exported"] == {"model.embed_tokens.weight": [REAL, 32]}
        assert found["equal"]


def test_any_other_number_of_rows_is_refused_with_both(ranks: list[dict[str, Any]]) -> None:
    for found in ranks:
        assert all(f"({rows}, 32)" in found["refusal"] for rows in (REAL, PADDED, WRONG)), found["refusal"]
