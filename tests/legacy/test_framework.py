"""A framework written for 0.4: as it is under ``legacy``, and rewritten by ``audit --fix``, it trains the same.

The same on every release, and on two ranks as on one: its weights are drawn whole and then split.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from mcore_compat.audit.fix import fix_files
from tests.launch import run_ranks

SOURCE = Path(__file__).with_name("framework") / "trainer.py"
PROGRAM = "tests.legacy.programs:curves"
TWO = {"tp 2": [2, 1], "pp 2": [1, 2], "dp 2": [1, 1]}


@pytest.fixture(scope="module")
def rewritten(tmp_path_factory: pytest.TempPathFactory) -> Path:
    copy = tmp_path_factory.mktemp("framework") / SOURCE.name
    shutil.copy(SOURCE, copy)
    fix_files(copy)
    return copy


def curves(script: Path, era: str | None, release: str, ranks: int) -> dict[str, Any]:
    """By layout, from the last rank: it has the last stage, where the loss is."""
    layouts = {"one": [1, 1]} if ranks == 1 else TWO
    arguments = (str(script), era, list(layouts.values()))
    return dict(zip(layouts, run_ranks(PROGRAM, *arguments, release=release, nproc=ranks)[-1], strict=True))


@pytest.fixture(scope="module")
def expected() -> list[list[float]]:
    curve: list[list[float]] = curves(SOURCE, "0.4", "0.4.0", 1)["one"]
    return curve


def agree(found: dict[str, Any], expected: list[list[float]]) -> None:
    for layout, curve in found.items():
        for step, other in zip(curve, expected, strict=True):
            assert step == pytest.approx(other, rel=1e-5), layout


def test_it_learns(expected: list[list[float]]) -> None:
    assert expected[-1][0] < expected[0][0]


@pytest.mark.sampled("0.4.0", "0.19.2")
@pytest.mark.parametrize("ranks", [1, 2])
def test_as_it_is(release: str, ranks: int, expected: list[list[float]]) -> None:
    agree(curves(SOURCE, "0.4", release, ranks), expected)


@pytest.mark.sampled("0.4.0", "0.19.2")
def test_rewritten(release: str, rewritten: Path, expected: list[list[float]]) -> None:
    agree(curves(rewritten, None, release, 2), expected)
