"""A framework written for 0.4: as it is under ``legacy``, and rewritten by ``audit --fix``, it trains the same."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from mcore_compat.audit.fix import fix_files
from tests.launch import run_ranks

SOURCE = Path(__file__).with_name("framework") / "trainer.py"
ALL = ("0.4.0", "0.6.0", "0.9.0", "0.12.3", "0.16.1", "0.19.2")


@pytest.fixture(scope="module")
def rewritten(tmp_path_factory: pytest.TempPathFactory) -> Path:
    copy = tmp_path_factory.mktemp("framework") / SOURCE.name
    shutil.copy(SOURCE, copy)
    fix_files(copy)
    return copy


@pytest.fixture(scope="module")
def curves(request: pytest.FixtureRequest, rewritten: Path) -> dict[tuple[str, str], Any]:
    releases = ALL if request.config.getoption("--all-releases") else (ALL[0], ALL[-1])
    ways = {"legacy": (str(SOURCE), "0.4"), "fixed": (str(rewritten), None)}
    return {
        (release, way): run_ranks("tests.legacy.programs:curve", *arguments, release=release)[0]
        for release in releases
        for way, arguments in ways.items()
    }


def test_one_curve(curves: dict[tuple[str, str], Any]) -> None:
    first = next(iter(curves.values()))
    assert first[0][0] > first[-1][0]
    for where, curve in curves.items():
        for found, expected in zip(curve, first, strict=True):
            assert found == pytest.approx(expected, rel=1e-5), where
