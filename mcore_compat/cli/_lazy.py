"""A group that knows each command's name and help, and imports its module only when it runs."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click


class LazyGroup(click.Group):
    """Imports a command's module when it runs.

    Args:
        summaries: Name of each command and its line of help.
        prefix: The command ``name`` lives in the module ``mcore_compat.cli.<prefix><name>``, as a click command that
            is called as the module is.
    """

    def __init__(self, *args: Any, summaries: Mapping[str, str], prefix: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._summaries = summaries
        self._prefix = prefix

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in order."""
        return sorted(self._summaries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, imported now."""
        if cmd_name not in self._summaries:
            return None
        name = self._prefix + cmd_name
        command = getattr(import_module(f"mcore_compat.cli.{name}"), name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(sorted(self._summaries.items()))
