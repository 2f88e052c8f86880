"""How two sets of tensors differ, and what that says about the cause."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import torch

Facts = Mapping[str, Mapping[str, Any]]
Tensors = Mapping[str, "torch.Tensor"]
# How exactly a difference must follow a rule to be called by its name; rounding stays far below.
_EXACT = 1e-4


class Size(NamedTuple):
    """Size of the difference of two tensors."""

    shape: tuple[int, ...]
    elements: int
    largest: float
    relative: float


@dataclass(frozen=True)
class Findings:
    """Two sides of one stage.

    Attributes:
        stage: Its name.
        old: One side.
        new: The other.
        tolerance: As for :func:`mcore_compat.matrix.diff.first_divergence`.
        weights: The weights that both sides had before the step, where known.
    """

    stage: str
    old: Tensors = field(repr=False)
    new: Tensors = field(repr=False)
    tolerance: float = 0.0
    weights: Tensors | None = field(default=None, repr=False)

    @property
    def names(self) -> list[str]:
        """Of either side, in the order of the old one."""
        return list(dict.fromkeys([*self.old, *self.new]))

    @cached_property
    def differing(self) -> list[str]:
        """Tensors that differ, or that one side lacks."""
        return [name for name in self.names if self._differs(name)]

    def size(self, name: str) -> Size:
        """How much a tensor differs; all zero where one side lacks it or has another shape."""
        if not self._comparable(name):
            return Size((), 0, 0.0, 0.0)
        difference = self.change(name).abs()
        largest = float(difference.max())
        scale = float(self.old[name].abs().max())
        relative = largest / scale if scale else float("inf")
        return Size(tuple(difference.shape), int(difference.count_nonzero()), largest, relative)

    def change(self, name: str) -> torch.Tensor:
        """New minus old, fp64."""
        return self.new[name].double() - self.old[name].double()

    def _differs(self, name: str) -> bool:
        if not self._comparable(name):
            return True
        old, new = self.old[name], self.new[name]
        if bool((old.eq(new) | (old.isnan() & new.isnan())).all()):
            return False
        # Not "greater": a NaN on one side is a difference at any tolerance.
        return not self.size(name).relative <= self.tolerance

    def _comparable(self, name: str) -> bool:
        return name in self.old and name in self.new and self.old[name].shape == self.new[name].shape


def causes(findings: Findings, place: str, old: Facts, new: Facts) -> Iterator[str]:
    """What is known to differ, most telling first.

    Args:
        findings: The first stage that differs.
        place: Module or parameter of the first difference.
        old: Plain attributes of modules and parameters of the old side.
        new: The same of the new side.
    """
    yield from _presence(findings)
    yield from (f"{place}: {text}" for text in _changed_facts(old.get(place, {}), new.get(place, {})))
    if findings.stage == "gradients":
        yield from _common_factor(findings)
    if findings.stage == "updated parameters":
        yield from _frozen(findings)
        yield from _decayed(findings)


def _presence(findings: Findings) -> Iterator[str]:
    name = findings.differing[0]
    for side, tensors in (("old", findings.old), ("new", findings.new)):
        if name not in tensors:
            missing = sum(other not in tensors for other in findings.differing)
            frozen = ", as a frozen parameter has" if findings.stage == "gradients" else ""
            yield f"the {side} side has no {findings.stage} for {missing} tensor(s){frozen}"


def _changed_facts(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    shared = (name for name in old if name in new and old[name] != new[name])
    yield from (f"{name} {old[name]!r} -> {new[name]!r}" for name in shared)


def _common_factor(findings: Findings) -> Iterator[str]:
    """Every gradient is the same multiple of the old one: the loss was scaled, or divided, by another number."""
    import torch

    if set(findings.old) != set(findings.new):
        return
    sides = (findings.old, findings.new)
    old, new = (torch.cat([side[name].double().flatten() for name in findings.old]) for side in sides)
    factor = float(new @ old / (old @ old))
    if abs(factor - 1) > _EXACT and _close(new, factor * old):
        yield f"every gradient is {factor:.6g} times as large: another loss scale or divisor"


def _frozen(findings: Findings) -> Iterator[str]:
    for side, tensors in (("old", findings.old), ("new", findings.new)):
        still = [name for name in findings.differing if _kept(tensors, findings.weights, name)]
        if still:
            yield f"the {side} side did not change {len(still)} parameter(s), first {still[0]}: frozen there"


def _kept(tensors: Tensors, weights: Tensors | None, name: str) -> bool:
    return weights is not None and name in tensors and name in weights and weights[name].equal(tensors[name])


def _decayed(findings: Findings) -> Iterator[str]:
    """What differs is a multiple of the weight itself."""
    weights = findings.weights or {}
    for name in findings.differing:
        if name not in weights or name not in findings.new or name not in findings.old:
            continue
        before, change = weights[name].double(), findings.change(name)
        factor = float((change.flatten() @ before.flatten()) / (before.flatten() @ before.flatten()))
        if factor and _close(change, factor * before, tolerance=0.05):
            yield f"{name} differs by {factor:.3g} of itself: another weight decay"
            return


def _close(found: torch.Tensor, expected: torch.Tensor, tolerance: float = _EXACT) -> bool:
    return bool((found - expected).norm() <= tolerance * expected.norm())
