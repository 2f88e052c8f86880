"""Replace this process by a command that sees one Megatron-Core release first."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Sequence
from email.parser import HeaderParser
from pathlib import Path
from typing import NoReturn

from packaging.specifiers import SpecifierSet

from mcore_compat.errors import ConfigError, EnvironmentMismatch
from mcore_compat.matrix.overlay import overlay


def execute(version: str, command: Sequence[str]) -> NoReturn:
    """Run ``command`` with that release in front of PYTHONPATH; its exit status becomes this process's.

    Raises:
        ConfigError: No such release, or no such program.
        EnvironmentMismatch: The release cannot be had, or another Megatron would be imported before it.
    """
    _refuse_shadow()
    folder = overlay(version)
    if note := outside_python_range(folder):
        print(note, file=sys.stderr)
    inherited = os.environ.get("PYTHONPATH")
    path = os.pathsep.join([str(folder), inherited] if inherited else [str(folder)])
    sys.stdout.flush()
    try:
        os.execvpe(command[0], list(command), os.environ | {"PYTHONPATH": path})
    except OSError as error:
        raise ConfigError(
            f"cannot run {command[0]!r}: {error.strerror}",
            hint="mcore-compat matrix exec VERSION -- COMMAND ...",
        ) from error


def outside_python_range(folder: Path) -> str:
    """A note where the release in ``folder`` declares a Python range that leaves this one out, else nothing."""
    here = platform.python_version()
    for metadata in folder.glob("*.dist-info/METADATA"):
        declared = HeaderParser().parsestr(metadata.read_text(encoding="utf-8")).get("Requires-Python", "")
        if here not in SpecifierSet(declared):
            return f"note: {metadata.parent.name.removesuffix('.dist-info')} asks for Python {declared}, this is {here}"
    return ""


def _refuse_shadow() -> None:
    here = Path.cwd()
    if (here / "megatron" / "core").is_dir():
        raise EnvironmentMismatch(
            f"{here} holds a Megatron of its own, which Python would import before the release asked for",
            hint="run it from another directory",
        )
    for entry in dict.fromkeys([here, *map(Path, sys.path)]):
        # Releases have no such file, and Python prefers a package with one wherever on the path it is.
        if (entry / "megatron" / "__init__.py").is_file():
            raise EnvironmentMismatch(
                f"{entry / 'megatron'} would be imported instead of the release asked for",
                hint=f"take {entry} off PYTHONPATH, or run elsewhere, or uninstall what put it there",
            )
