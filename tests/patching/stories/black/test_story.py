"""A fork reformatted real releases with black."""

from __future__ import annotations

from pathlib import Path

import black
import pytest

from mcore_compat.matrix.overlay import overlay
from tests.patching.megatrons import checkout_of
from tests.patching.reformatted import begun_in, require_same_program
from tests.patching.test_releases import NEEDED, OF_THE_REPOSITORY


def reformatted(text: str) -> str:
    return black.format_str(text, mode=black.Mode(line_length=60))


@pytest.mark.sampled("0.6.0")
def test_same_program_whether_patched_before_or_after(release: str) -> None:
    require_same_program(overlay(release), begun_in(release, NEEDED), reformatted)


@pytest.mark.parametrize("version", ["0.4.0", "0.5.0"])
def test_same_program_in_the_repository(version: str, tmp_path: Path) -> None:
    tree = checkout_of(f"core_v{version}", tmp_path)
    require_same_program(tree, begun_in(version, OF_THE_REPOSITORY), reformatted)
