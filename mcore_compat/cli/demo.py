"""``mcore-compat demo``: PPO on sums, from nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mcore_compat.cli._job import make_backend, require_packages, run_job, world_size

if TYPE_CHECKING:
    from mcore_compat.rl.interrupt import StopRequest
    from mcore_compat.rl.progress import Talk
    from mcore_compat.rl.report import Report


@click.command()
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--steps", type=click.IntRange(min=1), default=30, show_default=True, help="PPO steps.")
@click.option("--output", metavar="DIR", help="Run folder (default: runs/demo, numbered where taken).")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object at the end.")
def demo(overrides: tuple[str, ...], steps: int, output: str | None, as_json: bool) -> None:
    """Make a tiny Llama and sums to solve, warm it up on a textbook with a mistake, and correct it by PPO.

    Needs no network and no data. KEY=VALUE changes any setting of the PPO run.
    """
    require_packages()
    import torch

    from mcore_compat.rl.demo import DemoOptions, run_demo

    # The matrices are too small for more threads, and sums then have one order on every machine.
    torch.set_num_threads(1)
    options = DemoOptions(steps=steps, output=output, overrides=overrides)

    def job(talk: Talk, stop: StopRequest) -> Report:
        return run_demo(options, make_backend, world_size=world_size(), talk=talk, stop=stop)

    run_job(job, as_json=as_json)
