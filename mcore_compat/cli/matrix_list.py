"""``mcore-compat matrix list``: the release table and the forks of this machine."""

from __future__ import annotations

from dataclasses import asdict

import click

from mcore_compat.cli._output import print_json, print_table
from mcore_compat.matrix.table import forks, releases


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def matrix_list(as_json: bool) -> None:
    """Show the releases of the table, and the forks of matrix/forks.toml."""
    if as_json:
        named = [asdict(fork) | {"root": str(fork.root)} for fork in forks()]
        print_json({"releases": [asdict(row) for row in releases()], "forks": named})
        return
    rows = [[row.version, row.level, f"wheel for Python {row.python}", row.note] for row in releases()]
    rows += [[fork.name, fork.level, f"{fork.root}, from {fork.base}", fork.note] for fork in forks()]
    print_table(["release", "verified", "source", "note"], rows)
