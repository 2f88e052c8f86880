"""Two traces of the same steps, compared in the order in which they were computed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcore_compat.matrix.diff_causes import Findings, causes

if TYPE_CHECKING:
    import torch

# Recorded to find the place of differing logits; inner results may differ where outputs agree.
INNER = "module outputs"


@dataclass(frozen=True)
class Divergence:
    """The first difference between two traces.

    Attributes:
        step: Number of the step, 0 before the first.
        stage: What was compared, such as ``gradients``.
        tensor: First tensor of that stage that differs.
        shape: Its shape; empty where one side lacks it.
        elements: How many of its elements differ.
        largest: Largest absolute difference.
        relative: That, over the largest absolute element of the old side.
        tensors: How many tensors of the stage differ, of how many.
        place: Module of the model, or parameter, where the difference comes from.
        causes: What else is known to differ there, in words.
    """

    step: int
    stage: str
    tensor: str
    shape: tuple[int, ...]
    elements: int
    largest: float
    relative: float
    tensors: tuple[int, int]
    place: str
    causes: tuple[str, ...]


@dataclass(frozen=True)
class Stage:
    """Tensors of one stage."""

    step: int
    name: str
    path: Path
    names: tuple[str, ...]

    def tensors(self) -> dict[str, torch.Tensor]:
        """Read them, in the order of their computation."""
        from safetensors.torch import load_file

        found = load_file(self.path)
        return {name: found[name] for name in self.names}


@dataclass(frozen=True)
class Trace:
    """What one side wrote."""

    folder: Path
    facts: Mapping[str, Mapping[str, Any]] = field(repr=False)
    stages: tuple[Stage, ...] = field(repr=False)

    @classmethod
    def read(cls, folder: Path) -> Trace:
        """Read the index; tensors are read when compared."""
        rows = [json.loads(line) for line in (folder / "stages.jsonl").read_text(encoding="utf-8").splitlines()]
        stages = (Stage(row["step"], row["stage"], folder / row["file"], tuple(row["names"])) for row in rows)
        return cls(folder, json.loads((folder / "facts.json").read_text(encoding="utf-8")), tuple(stages))


def first_divergence(old: Trace, new: Trace, tolerance: float = 0.0) -> Divergence | None:
    """Compare stage by stage; ``None`` where nothing differs.

    Args:
        old: One side.
        new: The other.
        tolerance: Differences up to this, relative to the largest element of the tensor, are none; 0: bit for bit.
    """
    inner, weights = None, None
    for before, after in zip(old.stages, new.stages, strict=True):
        if before.name == INNER:
            inner = (before, after)
            continue
        findings = Findings(before.name, before.tensors(), after.tensors(), tolerance, weights)
        if findings.differing:
            return _report(before, findings, old, new, inner)
        if before.name in ("initial weights", "updated parameters"):
            weights = findings.old
    return None


def _report(stage: Stage, findings: Findings, old: Trace, new: Trace, inner: tuple[Stage, Stage] | None) -> Divergence:
    name = findings.differing[0]
    place = name.partition(" ")[0]
    if inner and stage.name in ("logits", "loss"):
        place = _first_module(inner, findings.tolerance) or name
    size = findings.size(name)
    return Divergence(
        step=stage.step,
        stage=stage.name,
        tensor=name,
        shape=size.shape,
        elements=size.elements,
        largest=size.largest,
        relative=size.relative,
        tensors=(len(findings.differing), len(findings.names)),
        place=place,
        causes=tuple(causes(findings, place, old.facts, new.facts)),
    )


def _first_module(inner: tuple[Stage, Stage], tolerance: float) -> str:
    """The first module that both sides have, and whose outputs have one shape but other values."""
    before, after = (stage.tensors() for stage in inner)
    shared = [name for name in after if name in before and before[name].shape == after[name].shape]
    old, new = ({name: tensors[name] for name in shared} for tensors in (before, after))
    findings = Findings(INNER, old, new, tolerance)
    return findings.differing[0] if findings.differing else ""


def describe(found: Divergence) -> Iterator[str]:
    """The divergence in words, line by line."""
    when = f"step {found.step}, " if found.step else ""
    count, of = found.tensors
    yield f"first divergence: {when}{found.stage}, {found.tensor}"
    if found.shape:
        yield f"  size       {found.largest:.3g} at most ({found.relative:.2g} of its largest element)"
        yield f"  elements   {found.elements} differ, shape {list(found.shape)}"
    yield f"  tensors    {count} of {of} of this stage differ"
    yield f"  place      {found.place}"
    yield from (f"  {'because' if not index else '':10} {cause}" for index, cause in enumerate(found.causes))
