"""``mcore-compat matrix``: the group of commands about other Megatron-Core releases."""

from __future__ import annotations

import click

from mcore_compat.cli._lazy import LazyGroup

COMMANDS = {
    "diff": "Show the first number that an upgrade changes.",
    "drift": "List the upstream signatures that an upgrade changes.",
    "exec": "Run a command with another Megatron-Core release.",
    "list": "Show the releases of the table.",
    "report": "Write what was found as one HTML page.",
    "run": "Run a suite of tests once per release.",
}


@click.group(cls=LazyGroup, summaries=COMMANDS, prefix="matrix_")
def matrix() -> None:
    """Run, test and compare Megatron-Core releases."""
