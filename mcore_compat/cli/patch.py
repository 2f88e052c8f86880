"""``mcore-compat patch``: semantic patches and unified diffs on a Megatron tree."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mcore_compat.cli._output import print_json, print_table

if TYPE_CHECKING:
    from mcore_compat.patching import Report, Result

_FILES = (".yaml", ".yml", ".patch", ".diff")
_FINDINGS, _REFUSED = 1, 3

_root = click.option(
    "--root", type=click.Path(path_type=Path), required=True, metavar="TREE", help="A checkout, fork or site-packages."
)
_only = click.option("--only", multiple=True, metavar="ID", help="Only this patch; may be given again.")
_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
_dry_run = click.option("--dry-run", is_flag=True, help="Write nothing.")
_chosen = click.argument("patches", nargs=-1, metavar="[ID | FILE.yaml | FILE.patch]...")


@click.group()
def patch() -> None:
    """Change a Megatron tree by rules that survive reformatting, or by unified diffs; take it back exactly.

    Needs neither torch nor an importable Megatron. Exits with 1 where check or status finds something, with 3 where
    apply or revert refuses: nothing is written then.
    """


@patch.command("list")
@_json
def list_patches(as_json: bool) -> None:
    """Show the patches that come with this package, in the order in which they are applied."""
    from mcore_compat.patching.catalogue import rules, series

    rows = [rules(name) for name in series()]
    if as_json:
        keys = ("id", "title", "why", "since", "upstream")
        print_json({"patches": [{key: asdict(row)[key] for key in keys} for row in rows]})
    else:
        columns = [(row.id, row.since, row.upstream.release if row.upstream else "", row.title) for row in rows]
        print_table(["patch", "since", "fixed in", "what it changes"], columns)


@patch.command()
@click.argument("patch_id", metavar="ID")
def show(patch_id: str) -> None:
    """Print one patch as it is written."""
    from mcore_compat.patching.catalogue import folder, rules

    click.echo((folder() / f"{rules(patch_id).id}.yaml").read_text(encoding="utf-8"), nl=False)


@patch.command()
@_chosen
@click.option("--root", type=click.Path(path_type=Path), metavar="TREE", help="A checkout, fork or site-packages.")
@click.option("--all-releases", is_flag=True, help="Every release of the table instead of TREE.")
@_only
@_json
def check(
    patches: tuple[str, ...], root: Path | None, all_releases: bool, only: tuple[str, ...], as_json: bool
) -> None:
    """Say what apply would do."""
    from mcore_compat import patching

    if all_releases == (root is not None):
        raise click.UsageError("give either --root TREE or --all-releases")
    if root is None:
        _check_releases(lambda tree: patching.check(tree, *_choice(patches, only)), as_json)
    else:
        _tell(patching.check(root, *_choice(patches, only)), as_json, _FINDINGS)


@patch.command()
@_chosen
@_root
@_only
@_dry_run
@_json
def apply(patches: tuple[str, ...], root: Path, only: tuple[str, ...], dry_run: bool, as_json: bool) -> None:
    """Apply patches as one transaction; finishes one that was interrupted."""
    from mcore_compat import patching

    _tell(patching.apply(root, *_choice(patches, only), dry_run=dry_run), as_json, _REFUSED)


@patch.command()
@click.argument("patches", nargs=-1, metavar="[ID]...")
@_root
@_only
@_dry_run
@_json
def revert(patches: tuple[str, ...], root: Path, only: tuple[str, ...], dry_run: bool, as_json: bool) -> None:
    """Take applied patches back, keeping edits made elsewhere since; takes back an interrupted apply."""
    from mcore_compat import patching

    ids = [*only, *(Path(name).stem if name.endswith(_FILES) else name for name in patches)]
    _tell(patching.revert(root, ids or None, dry_run=dry_run), as_json, _REFUSED)


@patch.command()
@_root
@_json
def status(root: Path, as_json: bool) -> None:
    """Show what is applied and whether it is still so."""
    from mcore_compat import patching

    _tell(patching.status(root), as_json, _FINDINGS)


@patch.command()
@_chosen
@_root
@_only
def diff(patches: tuple[str, ...], root: Path, only: tuple[str, ...]) -> None:
    """Print what apply would change as a unified diff."""
    from mcore_compat import patching

    text = patching.diff(root, *_choice(patches, only))
    click.echo(text.encode("utf-8", "surrogateescape"), nl=False)


@patch.command()
@click.argument("patch_id", metavar="ID")
@_root
@click.option("--path", default="megatron/core/package_info.py", show_default=True, help="File in TREE to change.")
@click.option("--pattern", default="MAJOR = $NUMBER", show_default=True, help="What to replace, as ast-grep has it.")
@click.option("--fix", default="MAJOR = int($NUMBER)", show_default=True, help="What to put there.")
def new(patch_id: str, root: Path, path: str, pattern: str, fix: str) -> None:
    """Start ID.yaml in this folder and try it on TREE; changes nothing there."""
    from mcore_compat import patching
    from mcore_compat.detect import find
    from mcore_compat.patching.template import start

    since = ".".join((find(root).version or "0.4.0").split(".")[:3])
    file = start(patch_id, Path(), since=since, path=path, pattern=pattern, fix=fix)
    click.echo(f"wrote {file}: edit it, then run mcore-compat patch check {file} --root {root}", err=True)
    _tell(patching.check(root, None, [file]), False, _FINDINGS)


def _choice(patches: tuple[str, ...], only: tuple[str, ...]) -> tuple[list[str] | None, list[Path]]:
    """What is named on the command line, as ids (``None``: all) and files."""
    files = [Path(name) for name in patches if name.endswith(_FILES)]
    ids = [*only, *(name for name in patches if not name.endswith(_FILES))]
    return ids or None, files


def _tell(report: Report, as_json: bool, code: int) -> None:
    """Print a report; exit with ``code`` where it is not fine."""
    if as_json:
        print_json(_as_json(report))
    else:
        _print(report)
    if not report.is_fine and code == _REFUSED:
        click.echo("nothing was written; name the patches that fit to have those alone", err=True)
    if not report.is_fine or report.interrupted:
        click.get_current_context().exit(code)


def _as_json(report: Report) -> dict[str, Any]:
    megatron = asdict(report.megatron) | {"root": str(report.megatron.root)} if report.megatron else None
    return {
        "root": str(report.root),
        "megatron": megatron,
        "patches": _results_as_json(report.results),
        "written": report.written,
        "interrupted": report.interrupted,
    }


def _results_as_json(results: tuple[Result, ...]) -> dict[str, Any]:
    return {each.id: {"state": each.state, "where": each.where, "reason": each.reason} for each in results}


def _print(report: Report) -> None:
    click.echo(f"Megatron  {report.megatron}" if report.megatron else f"Megatron  none found in {report.root}")
    if report.interrupted:
        click.echo(f"{report.interrupted}; patch apply and patch revert bring it to an end")
    click.echo()
    if not report.results:
        click.echo("no patch is applied here")
        return
    print_table(["patch", "state", "where"], [(each.id, each.state, _short(each.where)) for each in report.results])
    for each in report.results:
        if not each.is_fine:
            click.echo(f"\n{each.id}: {each.state}")
            click.echo("\n".join(f"  {line}" for line in each.reason.splitlines()))


def _short(where: tuple[str, ...]) -> str:
    return where[0] + (f" and {len(where) - 1} more" if len(where) > 1 else "") if where else ""


def _check_releases(check_tree: Callable[[Path], Report], as_json: bool) -> None:
    from mcore_compat.matrix.overlay import overlay
    from mcore_compat.matrix.table import releases

    reports = {row.version: check_tree(overlay(row.version)) for row in releases()}
    if as_json:
        print_json({"releases": {name: _results_as_json(report.results) for name, report in reports.items()}})
    else:
        rows = zip(*(report.results for report in reports.values()), strict=True)
        print_table(["patch", *reports], [[row[0].id, *(each.state for each in row)] for row in rows])
    if not all(report.is_fine for report in reports.values()):
        click.get_current_context().exit(_FINDINGS)
