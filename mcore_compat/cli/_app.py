"""The command group ``mcore-compat``, and what becomes of the package's errors."""

from __future__ import annotations

import os
from typing import Any

import click

import mcore_compat
from mcore_compat.cli._lazy import LazyGroup
from mcore_compat.errors import McoreCompatError

COMMANDS = {
    "audit": "List what of a framework breaks on another Megatron.",
    "demo": "Make a tiny model and task, then run PPO on them.",
    "doctor": "Show the Megatron that is there and how each seam fits it.",
    "matrix": "Other Megatron-Core releases: run them, test them, compare them.",
    "patch": "Change a Megatron tree by checked, reversible patches.",
    "run": "Run a script written for an earlier Megatron on the one that is there.",
    "train": "Run PPO as a configuration file says.",
}


class App(LazyGroup):
    """Turns the package's errors into exit codes."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; an error of this package becomes one message and its exit code."""
        try:
            return super().invoke(ctx)
        except McoreCompatError as error:
            # Every rank of a job meets the same error: one of them says so.
            if os.environ.get("RANK", "") in ("", "0"):
                click.echo(f"error: {error}", err=True)
            ctx.exit(error.exit_code)


@click.group(cls=App, summaries=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(mcore_compat.__version__, prog_name="mcore-compat")
def app() -> None:
    """One stable API over every Megatron-Core release."""
