"""``mcore-compat train``: PPO as a configuration file says."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from mcore_compat.cli._job import make_backend, require_packages, run_job, world_size

if TYPE_CHECKING:
    from mcore_compat.rl.interrupt import StopRequest
    from mcore_compat.rl.progress import Talk
    from mcore_compat.rl.report import Report


@click.command()
@click.argument("config", type=click.Path(path_type=Path))
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object at the end.")
def train(config: Path, overrides: tuple[str, ...], as_json: bool) -> None:
    """Run PPO with the settings of CONFIG, a YAML file in verl's key names.

    Under torchrun the ranks share the work as actor_rollout_ref.actor.megatron says. Ctrl-C ends the run
    after the step in flight. With trainer.save_freq the same command and run folder
    (trainer.default_local_dir) goes on from the newest checkpoint, on any layout and release.
    """
    require_packages()
    from mcore_compat.rl.config_load import load_config

    # Before the slow imports, so that a misspelt key is reported at once.
    settings = load_config(config, overrides, world_size=world_size())

    def job(talk: Talk, stop: StopRequest) -> Report:
        from mcore_compat.rl.run_folder import choose_folder
        from mcore_compat.rl.trainer import train as run_ppo

        backend = make_backend(settings)
        trainer = settings.trainer
        folder = backend.on_rank_zero(
            lambda: choose_folder(trainer.default_local_dir, trainer.experiment_name, trainer)
        )
        return run_ppo(settings, backend, folder, talk=talk, stop=stop)

    run_job(job, as_json=as_json)
