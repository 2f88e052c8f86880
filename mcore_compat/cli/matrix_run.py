"""``mcore-compat matrix run``: a suite once per release."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

import click

from mcore_compat.cli._job import INTERRUPTED
from mcore_compat.cli._output import print_json, print_table
from mcore_compat.matrix.cells import Cell
from mcore_compat.matrix.run import run_suite, selected
from mcore_compat.matrix.suites import SUITES

COLUMNS = ("release", "status", "passed", "failed", "skipped", "seconds", "reason", "note")


@click.command()
@click.option("--only", multiple=True, metavar="RELEASES", help="Versions, forks, or a specifier such as '>=0.15'.")
@click.option("--suite", type=click.Choice(list(SUITES)), default="contract", show_default=True, help="What to run.")
@click.option("--jobs", type=click.IntRange(min=1), default=os.cpu_count, help="Releases at a time.  [default: cores]")
@click.option("--fresh", is_flag=True, help="Run also what passed before and has not changed.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def matrix_run(only: tuple[str, ...], suite: str, jobs: int, fresh: bool, as_json: bool) -> None:
    """Run a suite of tests once per release, each in a process of its own.

    What passed is kept: a later run takes it from there as long as neither the package, nor the tests, nor the
    row of the release, nor torch changed. A release that cannot run here is skipped with the reason. Exits with 1
    where a test failed.
    """
    names = selected(only, SUITES[suite])
    done = 0

    def say(name: str, cell: Cell, kept: bool) -> None:
        nonlocal done
        done += 1
        click.echo(f"[{done}/{len(names)}] {name} {suite}: {_line(cell)}{', as before' if kept else ''}", err=True)

    try:
        cells = run_suite(SUITES[suite], names, say=say, jobs=jobs, fresh=fresh)
    except KeyboardInterrupt:
        click.echo("interrupted; what is done is kept, and the next run goes on from there", err=True)
        sys.exit(INTERRUPTED)
    _print(suite, cells, as_json=as_json)
    if any(cell.status == "failed" for cell in cells.values()):
        sys.exit(1)


def _line(cell: Cell) -> str:
    counts = f"{cell.passed} passed, {cell.failed} failed, {cell.skipped} skipped"
    return f"skipped: {cell.reason}" if cell.status == "skipped" else f"{counts} in {cell.seconds:.0f} s"


def _print(suite: str, cells: Mapping[str, Cell], *, as_json: bool) -> None:
    if as_json:
        print_json({"suite": suite, "releases": {name: cell.summary() for name, cell in cells.items()}})
        return
    rows = ((name, cell.summary()) for name, cell in cells.items())
    print_table(COLUMNS, [[name, *(str(row[column]) for column in COLUMNS[1:])] for name, row in rows])
