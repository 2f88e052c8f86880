"""``mcore-compat run``: a program written for an earlier Megatron on the one that is there."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import click

from mcore_compat.errors import ConfigError


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--era", default="0.4", show_default=True, help="Megatron release the program was written for.")
@click.option("-m", "module", is_flag=True, help="PROGRAM is a module, as for python -m.")
@click.argument("program")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def run(era: str, module: bool, program: str, arguments: tuple[str, ...]) -> None:
    """Run PROGRAM with the names and call shapes of an earlier Megatron served; ARGUMENTS are its own.

    Under torchrun: torchrun ... -m mcore_compat run --era 0.4 script.py
    """
    if not module and not Path(program).is_file():
        raise ConfigError(f"no file {program}", hint="give a script, or a module after -m")
    from mcore_compat import legacy

    legacy.install(era=era)
    sys.argv = [program, *arguments]
    sys.path.insert(0, "" if module else str(Path(program).absolute().parent))
    if module:
        runpy.run_module(program, run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(program, run_name="__main__")
