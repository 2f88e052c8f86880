"""``mcore-compat matrix diff``: what an upgrade changes in the numbers."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from mcore_compat.cli._job import require_packages
from mcore_compat.cli._output import print_json
from mcore_compat.matrix.diff_sides import release_side, root_side, run_sides


@click.command()
@click.argument("old")
@click.argument("new", required=False)
@click.option("--config", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Settings of a PPO run.")
@click.option("--root", type=click.Path(path_type=Path), help="A fork or checkout, in the place of NEW.")
@click.option("--steps", type=click.IntRange(min=1), default=2, show_default=True, help="Optimizer steps.")
@click.option("--tolerance", type=click.FloatRange(min=0), default=0.0, help="Relative; default: bit for bit.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def matrix_diff(
    old: str, new: str | None, config: Path | None, root: Path | None, steps: int, tolerance: float, as_json: bool
) -> None:
    """Do the same supervised steps on releases OLD and NEW and show the first number that differs.

    Compared are, in this order, the initial weights, logits, loss, gradients, gradient norm, updated parameters
    and optimizer state: of the actor that the settings name, or of the demo's model, in one process. Exits with 1
    where something differs.
    """
    require_packages()
    from mcore_compat.matrix.diff import describe, first_divergence

    if new is None and root is None:
        raise click.UsageError("give a second release, or --root PATH")
    sides = (release_side(old), root_side(root) if root else release_side(new or ""))
    with TemporaryDirectory(prefix="mcore-compat-diff-") as folder:
        before, after = run_sides(sides, Path(folder), steps, config)
        found = first_divergence(before, after, tolerance)
    names = {"old": sides[0].name, "new": sides[1].name}
    if as_json:
        print_json(
            {**names, "steps": steps, "identical": found is None, "divergence": asdict(found) if found else None}
        )
    else:
        click.echo(f"{names['old']} -> {names['new']}, {_steps(steps)}")
        click.echo("\n".join(describe(found)) if found else _equal(tolerance))
    sys.exit(1 if found else 0)


def _steps(steps: int) -> str:
    return f"{steps} step{'s' if steps > 1 else ''}"


def _equal(tolerance: float) -> str:
    return f"equal within {tolerance:g}" if tolerance else "identical, bit for bit"
