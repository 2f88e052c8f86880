"""``mcore-compat matrix report``: what the matrix found, for people."""

from __future__ import annotations

import json
from pathlib import Path

import click

from mcore_compat.matrix.cells import Results
from mcore_compat.matrix.page import page
from mcore_compat.matrix.report import Overview, as_kept, as_markdown, between, gather
from mcore_compat.matrix.suites import checkout


@click.command()
@click.option(
    "--output", type=click.Path(path_type=Path), default="runs/matrix.html", show_default=True, help="The page."
)
@click.option("--readme", is_flag=True, help="Also write matrix/results.json and the README's table.")
def matrix_report(output: Path, readme: bool) -> None:
    """Write one HTML page of all stored results: suites by release, curves, deviations, call shapes."""
    root = checkout()
    overview = gather(root, Results())
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(page(overview), encoding="utf-8")
    click.echo(output)
    if readme:
        _keep(root, overview)


def _keep(root: Path, overview: Overview) -> None:
    kept, document = as_kept(overview), root / "README.md"
    (root / "matrix" / "results.json").write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    text = document.read_text(encoding="utf-8")
    document.write_text(between(text, "releases", as_markdown(kept)), encoding="utf-8")
