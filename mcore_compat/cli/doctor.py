"""``mcore-compat doctor``: what Megatron is there, and which variant each seam takes for it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from mcore_compat.cli._output import print_json, print_table
from mcore_compat.contracts import Choice
from mcore_compat.detect import Facts, Megatron, find
from mcore_compat.errors import UnsupportedMegatron
from mcore_compat.matrix.table import unverified
from mcore_compat.seams._registry import seams

Findings = dict[str, Choice | UnsupportedMegatron]


@click.command()
@click.option("--root", type=click.Path(path_type=Path), help="A Megatron-LM checkout or a site-packages.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def doctor(root: Path | None, as_json: bool) -> None:
    """Show the Megatron that is there and which variant each seam takes for it, and why.

    Reads source only: needs neither torch nor a GPU. Exits with 4 where no Megatron is or no variant fits.
    """
    megatron = find(root)
    findings = _examine(Facts(megatron.root))
    message = unverified(megatron.version)
    warnings = [message] if message else []
    if as_json:
        print_json(_as_json(megatron, findings, warnings))
    else:
        _print(megatron, findings, warnings)
    for finding in findings.values():
        if isinstance(finding, UnsupportedMegatron):
            raise finding


def _examine(facts: Facts) -> Findings:
    """Every seam's choice, or why it has none: one misfit must not hide the others."""
    findings: Findings = {}
    for seam in seams():
        try:
            findings[seam.name] = seam.select(facts)
        except UnsupportedMegatron as error:
            findings[seam.name] = error
    return findings


def _as_json(megatron: Megatron, findings: Findings, warnings: list[str]) -> dict[str, Any]:
    return {
        "megatron": asdict(megatron) | {"root": str(megatron.root)},
        "seams": {name: _finding_as_json(finding) for name, finding in findings.items()},
        "warnings": warnings,
    }


def _finding_as_json(finding: Choice | UnsupportedMegatron) -> dict[str, str | None]:
    if isinstance(finding, UnsupportedMegatron):
        return {"variant": None, "since": None, "why": str(finding)}
    return {"variant": finding.variant, "since": finding.since, "why": finding.why}


def _print(megatron: Megatron, findings: Findings, warnings: list[str]) -> None:
    click.echo(f"Megatron  {megatron.version or 'unknown version'}  {megatron.kind}")
    click.echo(f"path      {megatron.root}")
    if megatron.commit:
        click.echo(f"commit    {megatron.commit}")
    if megatron.distribution and megatron.distribution != megatron.version:
        click.echo(f"installed as {megatron.distribution}")
    click.echo()
    print_table(["seam", "variant", "since", "why"], [_row(name, findings[name]) for name in findings])
    for message in warnings:
        click.echo(f"warning: {message}", err=True)


def _row(name: str, finding: Choice | UnsupportedMegatron) -> list[str]:
    if isinstance(finding, UnsupportedMegatron):
        return [name, "none", "", "see below"]
    return [name, finding.variant, finding.since, finding.why]
