"""``mcore-compat matrix``: the release table, and commands under one release of it."""

from __future__ import annotations

from dataclasses import asdict

import click

from mcore_compat.cli._output import print_json, print_table
from mcore_compat.matrix.execute import execute
from mcore_compat.matrix.table import releases


@click.group()
def matrix() -> None:
    """Run a command with another Megatron-Core release."""


@matrix.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def list_releases(as_json: bool) -> None:
    """Show the releases of the table."""
    rows = releases()
    if as_json:
        print_json({"releases": [asdict(row) for row in rows]})
    else:
        print_table(["release", "wheel for Python", "note"], [[row.version, row.python, row.note] for row in rows])


@matrix.command("exec", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("version")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def execute_command(version: str, command: tuple[str, ...]) -> None:
    """Run COMMAND with Megatron-Core VERSION in front of everything else.

    The wheel is fetched once by pip, checked and unpacked into a cache; nothing is installed. The exit status
    is COMMAND's.
    """
    program = command[1:] if command[0] == "--" else command
    if not program:
        raise click.UsageError("give a COMMAND after --")
    execute(version, program)
