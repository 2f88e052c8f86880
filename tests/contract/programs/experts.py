"""A mixture of experts, alone and with half of the experts on each of two ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mcore_compat import McoreCompatError
from tests.contract.programs.t0 import DISTRIBUTED, UNSHARDED, compare, enter

CASES = {
    "plain": ("experts", UNSHARDED),
    "distributed": ("experts", DISTRIBUTED),
    "clipped": ("clipped experts", DISTRIBUTED),
}


def one_process(steps: dict[str, Any], folder: Path) -> dict[str, Any]:
    """All experts on one rank."""
    enter()
    return _cases(steps)


def two_ranks(steps: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The experts divided over the data-parallel ranks, and the batch over both of them."""
    enter(ep=2)
    return _cases(steps)


def _cases(steps: dict[str, Any]) -> dict[str, Any]:
    """Each comparison, or the error in its place."""
    found: dict[str, Any] = {}
    for name, (scenario, settings) in CASES.items():
        try:
            found[name] = compare(scenario, 2, steps, data_parallel=settings)
        except McoreCompatError as error:
            found[name] = {"error": f"{type(error).__name__}: {error}"}
    return found
