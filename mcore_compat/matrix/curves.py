"""Whether all releases draw the same curves, to the last bit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import zip_longest

from mcore_compat.matrix.cells import Cell, Series

_SHOWN = 3


@dataclass(frozen=True)
class Deviation:
    """Where one curve leaves that of another release.

    Attributes:
        run: Which training run.
        curve: Which of its curves.
        step: The first step at which they differ, counted from 0.
        expected: Value of the other release there; ``None``: it has none.
        found: Value here.
    """

    run: str
    curve: str
    step: int
    expected: float | None
    found: float | None

    def __str__(self) -> str:
        return f"{self.run}, {self.curve}, step {self.step}: {self.found!r} instead of {self.expected!r}"


def deviations(found: Mapping[str, Series], expected: Mapping[str, Series]) -> list[Deviation]:
    """Every curve that differs in any bit of any value, at its first such value."""
    both = ((run, curve) for run in expected for curve in {**expected[run], **found.get(run, {})})
    first = (_first(run, curve, found.get(run, {}).get(curve, []), expected[run].get(curve, [])) for run, curve in both)
    return [deviation for deviation in first if deviation]


def agreement(cells: Mapping[str, Cell], reference: str) -> dict[str, Cell]:
    """The cells; those that passed and whose curves are not the reference's have failed."""
    expected = cells[reference].series
    return {name: _judged(cell, expected, reference) for name, cell in cells.items()}


def _first(run: str, curve: str, found: list[float], expected: list[float]) -> Deviation | None:
    pairs = enumerate(zip_longest(found, expected))
    return next((Deviation(run, curve, step, theirs, own) for step, (own, theirs) in pairs if own != theirs), None)


def _judged(cell: Cell, expected: Mapping[str, Series], reference: str) -> Cell:
    if cell.status != "passed":
        return cell
    if not expected:
        return replace(cell, status="failed", reason=f"no curves of {reference} to compare with")
    found = deviations(cell.series, expected)
    if not found:
        return cell
    reason = f"{len(found)} curves are not those of {reference}: {'; '.join(map(str, found[:_SHOWN]))}"
    return replace(cell, status="failed", failed=cell.failed + 1, reason=reason)
