"""What commands print: tables for people, one JSON object for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import click

# Wide enough that a log or a pipe gets every row on one line.
WIDTH_WITHOUT_TERMINAL = 240


def print_json(value: dict[str, Any]) -> None:
    """Print one object to standard output."""
    click.echo(json.dumps({"schema_version": 1} | value, indent=2))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table to standard output."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*row)
    width = None if sys.stdout.isatty() else WIDTH_WITHOUT_TERMINAL
    Console(highlight=False, markup=False, width=width).print(table)
