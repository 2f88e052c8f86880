"""A release imports, and the objects have the call shapes that its source and its row promise."""

from __future__ import annotations

import pytest

from mcore_compat.matrix.table import expected, row
from tests.launch import run_ranks


@pytest.mark.sampled("0.4.0", "0.19.2")
def test_the_imported_objects_take_the_variants_of_the_row(release: str) -> None:
    [fitting] = run_ranks("tests.matrix.programs.imports:fitting", release=release)
    assert fitting == {seam: [variant] for seam, variant in expected(row(release)).items()}
