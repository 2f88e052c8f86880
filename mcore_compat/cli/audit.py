"""``mcore-compat audit``: what of a framework breaks on another Megatron, and rewriting what can be rewritten."""

from __future__ import annotations

import sys
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Any

import click

from mcore_compat.audit import Audit, Finding
from mcore_compat.audit import audit as examine
from mcore_compat.audit.search import Lookup
from mcore_compat.cli._output import print_json
from mcore_compat.errors import EnvironmentMismatch

_FOUND = 1


@click.command()
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--target", "targets", multiple=True, metavar="VERSION", help="Release to check; may be repeated.")
@click.option("--sources", is_flag=True, help="Also look up every imported name in the targets' sources.")
@click.option("--fix", is_flag=True, help="Rewrite what has an exact stable counterpart, and show the diff.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def audit(path: Path, targets: tuple[str, ...], sources: bool, fix: bool, as_json: bool) -> None:
    """List each use of Megatron under PATH that breaks on a target release (default: the newest).

    PATH is read, not imported; needs neither torch nor Megatron. Exits with 1 when something was found.
    """
    diff = _fix(path, targets) if fix else ""
    found = examine(path, targets, _lookup() if sources else None)
    if as_json:
        print_json(_as_json(found) | ({"diff": diff} if fix else {}))
    else:
        _print(found, diff)
    if found.findings:
        sys.exit(_FOUND)


def _lookup() -> Lookup:
    from mcore_compat.audit.sources import lookup

    return lookup


def _fix(path: Path, targets: tuple[str, ...]) -> str:
    try:
        from mcore_compat.audit.fix import fix_files
    except ModuleNotFoundError as error:
        raise EnvironmentMismatch("--fix needs libcst", hint="pip install 'mcore-compat[audit]'") from error
    return fix_files(path, targets)


def _as_json(found: Audit) -> dict[str, Any]:
    return {
        "targets": list(found.targets),
        "files": found.files,
        "findings": [asdict(finding) for finding in found.findings],
        "unread": [{"path": path, "why": why} for path, why in found.unread],
    }


def _print(found: Audit, diff: str) -> None:
    if diff:
        click.echo(diff)
    for path, findings in groupby(found.findings, key=lambda finding: finding.path):
        for finding in findings:
            click.echo(f"{path}:{finding.line}: {_text(finding, len(found.targets) > 1)}")
    for path, why in found.unread:
        click.echo(f"warning: {path} was left out: {why}", err=True)
    uses, files = _counted(len(found.findings), "use"), _counted(found.files - len(found.unread), "file")
    left_out = f"; {_counted(len(found.unread), 'file')} left out" if found.unread else ""
    click.echo(f"{uses} in {files} that break on {', '.join(found.targets)}{left_out}", err=True)


def _counted(count: int, what: str) -> str:
    return f"{count or 'no'} {what}{'' if count == 1 else 's'}"


def _text(finding: Finding, several: bool) -> str:
    where = f" [{', '.join(finding.breaks)}]" if several else ""
    return f"{finding.use}{where}\n    {finding.change}\n    instead: {finding.instead}"
