"""What a person sees of a running job: a bar on a terminal, one line per step elsewhere. All on stderr."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import TracebackType
from typing import Protocol

# Shown per step: label, metric, format.
_SHOWN = (
    ("score", "critic/score/mean", "{:.3f}"),
    ("val", "val/score/mean", "{:.3f}"),
    ("kl", "critic/kl", "{:.2e}"),
    ("pg_loss", "actor/pg_loss", "{:+.4f}"),
    ("vf_loss", "critic/vf_loss", "{:.4f}"),
    ("entropy", "actor/entropy", "{:.3f}"),
    ("length", "response_length/mean", "{:.1f}"),
    ("s/step", "timing_s/step", "{:.2f}"),
)


class Talk(Protocol):
    """Where a run reports to."""

    def say(self, text: str) -> None:
        """Show one line."""
        ...

    def step(self, step: int, total: int, metrics: Mapping[str, float]) -> None:
        """Show that a step is done."""
        ...


class Silent:
    """Reports nothing: the other ranks, and callers that want none of it."""

    def say(self, text: str) -> None:
        """Ignore the line."""

    def step(self, step: int, total: int, metrics: Mapping[str, float]) -> None:
        """Ignore the step."""


class Lines:
    """One plain line per step, for logs and pipes."""

    def say(self, text: str) -> None:
        """Write the line to stderr."""
        print(text, file=sys.stderr, flush=True)

    def step(self, step: int, total: int, metrics: Mapping[str, float]) -> None:
        """Write the step's main metrics to stderr."""
        self.say(f"step {step + 1}/{total}  {summary(metrics)}")


class Bar:
    """A progress bar; use it as a context manager."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self._progress = Progress(
            TextColumn("PPO"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.description}"),
            console=Console(stderr=True),
        )
        self._task = self._progress.add_task("", total=None, visible=False)

    def __enter__(self) -> Bar:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._progress.stop()

    def say(self, text: str) -> None:
        """Write the line above the bar."""
        self._progress.console.print(text, markup=False, highlight=False)

    def step(self, step: int, total: int, metrics: Mapping[str, float]) -> None:
        """Move the bar and show the step's main metrics beside it."""
        self._progress.update(self._task, completed=step + 1, total=total, description=summary(metrics), visible=True)


def summary(metrics: Mapping[str, float]) -> str:
    """Return the main metrics of a step in one line."""
    parts = [f"{label} {form.format(metrics[name])}" for label, name, form in _SHOWN if name in metrics]
    return "  ".join(parts)
