"""``mcore-compat matrix exec``: a command under one release of the table."""

from __future__ import annotations

import click

from mcore_compat.matrix.execute import Host, execute


@click.command(
    context_settings={"ignore_unknown_options": True}, options_metavar="", epilog="What follows -- is COMMAND's."
)
@click.argument("version")
@click.argument(
    "command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="[--host cpu] [--patched ID,...] -- COMMAND..."
)
@click.option("--host", type=click.Choice(["cpu"]), help="Let the CPU answer everything that COMMAND asks of CUDA.")
@click.option("--patched", default="", metavar="ID,...", help="Apply these patches in memory; ids or .yaml files.")
def matrix_exec(version: str, command: tuple[str, ...], host: Host | None, patched: str) -> None:
    """Run COMMAND with Megatron-Core VERSION in front of everything else.

    COMMAND need not know this package: what that release needs and is absent here is stood in for. The wheel is
    fetched once by pip, checked and unpacked into a cache; nothing is installed. The exit status is COMMAND's.
    """
    execute(version, command, host, [name for name in patched.split(",") if name])
