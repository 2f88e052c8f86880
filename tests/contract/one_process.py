"""Runs all checks that need one rank once per release, whatever file asks for them."""

from __future__ import annotations

from functools import cache
from typing import Any

from tests.launch import run_ranks


@cache
def checks(release: str) -> dict[str, Any]:
    """Findings by topic."""
    found: dict[str, Any] = run_ranks("tests.contract.programs.one_process:checks", release=release, timeout=240)[0]
    return found
