"""Case C08: a padded vocabulary on two tensor-parallel ranks shows nowhere outside the model."""

from __future__ import annotations

from functools import cache
from typing import Any

from tests.launch import run_ranks

REAL, PADDED, WRONG = 50, 64, 57
PROGRAM = "tests.contract.programs.vocabulary:padded_vocabulary"


@cache
def ranks(release: str) -> list[dict[str, Any]]:
    return run_ranks(PROGRAM, release=release, nproc=2, timeout=240)


def test_log_probabilities_and_entropy_are_those_of_the_real_columns(release: str) -> None:
    for found in ranks(release):
        assert found["local rows"] == PADDED // 2
        assert max(found["errors"].values()) < 1e-5


def test_no_padding_index_is_ever_drawn(release: str) -> None:
    for found in ranks(release):
        assert found["drawn"] == {"tokens": 1024, "distinct": REAL, "largest": REAL - 1}


def test_the_export_has_the_loaded_rows(release: str) -> None:
    for found in ranks(release):
        assert found["exported"] == {"model.embed_tokens.weight": [REAL, 32]}
        assert found["equal"]


def test_any_other_number_of_rows_is_refused_with_both(release: str) -> None:
    for found in ranks(release):
        assert all(f"({rows}, 32)" in found["refusal"] for rows in (REAL, PADDED, WRONG)), found["refusal"]
