"""The command group: knows each command's name and help, and imports its module only when it runs."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

import click

import mcore_compat
from mcore_compat.errors import McoreCompatError

# A command lives in the module of its name, as a click command of that name.
COMMANDS = {
    "demo": "Make a tiny model and task, then run PPO on them.",
    "doctor": "Show the Megatron that is there and how each seam fits it.",
    "matrix": "Run a command with another Megatron-Core release.",
    "train": "Run PPO as a configuration file says.",
}


class LazyGroup(click.Group):
    """Imports a command's module when it runs, and turns the package's errors into exit codes."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in order."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, imported now."""
        if cmd_name not in COMMANDS:
            return None
        command = getattr(import_module(f"mcore_compat.cli.{cmd_name}"), cmd_name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(sorted(COMMANDS.items()))

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; an error of this package becomes one message and its exit code."""
        try:
            return super().invoke(ctx)
        except McoreCompatError as error:
            # Every rank of a job meets the same error: one of them says so.
            if os.environ.get("RANK", "") in ("", "0"):
                click.echo(f"error: {error}", err=True)
            ctx.exit(error.exit_code)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(mcore_compat.__version__, prog_name="mcore-compat")
def app() -> None:
    """One stable API over every Megatron-Core release."""
