"""``mcore-compat run``: a program written for an earlier Megatron on the one that is there."""

from __future__ import annotations

import importlib.util
import runpy
import sys
from pathlib import Path

import click

from mcore_compat.cli._job import INTERRUPTED
from mcore_compat.errors import ConfigError, McoreCompatError


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--era", default="0.4", show_default=True, help="Megatron release the program was written for.")
@click.option("-m", "module", is_flag=True, help="PROGRAM is a module, as for python -m.")
@click.argument("program")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def run(era: str, module: bool, program: str, arguments: tuple[str, ...]) -> None:
    """Run PROGRAM with the names and call shapes of an earlier Megatron served; ARGUMENTS are its own.

    What it raises is printed as without this command.

    Under torchrun: torchrun ... -m mcore_compat run --era 0.4 script.py
    """
    sys.path.insert(0, "" if module else str(Path(program).absolute().parent))
    _require(program, module)
    from mcore_compat import legacy

    legacy.install(era=era)
    sys.argv = [program, *arguments]
    try:
        if module:
            runpy.run_module(program, run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(program, run_name="__main__")
    except (Exception, KeyboardInterrupt) as error:
        sys.exit(_reported(error))


def _require(program: str, module: bool) -> None:
    # Of a module its package only: importing that is for the program, with the redirects in place.
    if module and importlib.util.find_spec(program.partition(".")[0]) is None:
        raise ConfigError(f"no module {program}", hint="start in its folder, or put that on PYTHONPATH")
    if not module and not Path(program).is_file():
        raise ConfigError(f"no file {program}", hint="give a script, or a module after -m")


def _reported(error: BaseException) -> int:
    """Print the error as Python does, from the program's own first line on; returns the exit code."""
    trace = error.__traceback__
    while trace and trace.tb_frame.f_code.co_filename in (__file__, runpy.__file__, "<frozen runpy>"):
        trace = trace.tb_next
    sys.excepthook(type(error), error.with_traceback(trace), trace)
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    return error.exit_code if isinstance(error, McoreCompatError) else 1
