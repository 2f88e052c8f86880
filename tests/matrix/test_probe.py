"""The source of a release has exactly the call shapes that its row of the table names."""

from __future__ import annotations

import pytest

from mcore_compat.detect import Facts
from mcore_compat.matrix.overlay import overlay
from mcore_compat.matrix.table import expected, row
from mcore_compat.seams._registry import seams
from tests.releases import ends_of_call_shapes


@pytest.mark.sampled(*ends_of_call_shapes())
def test_the_source_takes_the_variants_of_the_row(release: str) -> None:
    facts = Facts(overlay(release))
    assert {seam.name: seam.select(facts).variant for seam in seams()} == dict(expected(row(release)))
