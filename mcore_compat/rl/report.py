"""What a run gives back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Report:
    """Result of a run.

    Attributes:
        megatron: Release of the engine.
        steps: Metrics of each step.
        score_before: Mean validation score before the first step; ``None``: not taken.
        score_after: The same after the last step; ``None``: the run was stopped before it.
        export: Hugging Face folder of the trained policy.
        folder: Run folder.
        interrupted: Whether a signal ended the run.
        next_steps: What the user may do with it, in lines to print.
    """

    megatron: str
    steps: Sequence[Mapping[str, float]]
    score_before: float | None
    score_after: float | None
    export: Path
    folder: Path
    interrupted: bool = False
    next_steps: Sequence[str] = ()

    def lines(self) -> list[str]:
        """Return what a person reads last."""
        scores = []
        if self.score_before is not None and self.score_after is not None:
            scores = [f"validation score: {self.score_before:.3f} before PPO, {self.score_after:.3f} after"]
        made = [f"policy: {self.export}", f"curves: {self.folder / 'curves.png'}"]
        return [*scores, *made, *self.next_steps]

    def as_json(self) -> dict[str, object]:
        """The object that ``--json`` prints."""
        return {
            "schema_version": SCHEMA_VERSION,
            "megatron": self.megatron,
            "steps": [dict(step) for step in self.steps],
            "score_before": self.score_before,
            "score_after": self.score_after,
            "export": str(self.export),
            "run_folder": str(self.folder),
            "interrupted": self.interrupted,
        }
