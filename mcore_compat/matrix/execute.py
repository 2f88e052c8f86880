"""A command that sees one Megatron-Core release first, prepared to run here though it never asks for it."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Sequence
from email.parser import HeaderParser
from pathlib import Path
from typing import Literal, NoReturn

from packaging.specifiers import SpecifierSet

from mcore_compat.errors import ConfigError, EnvironmentMismatch
from mcore_compat.matrix.overlay import overlay

Host = Literal["cpu"]
# Holds a sitecustomize.py, which each Python of the command runs first.
START_UP = Path(__file__).parents[1] / "runtime" / "start_up"


def execute(version: str, command: Sequence[str], host: Host | None = None, patched: Sequence[str] = ()) -> NoReturn:
    """Run ``command`` with that release in front of PYTHONPATH; its exit status becomes this process's.

    Args:
        version: A release of the table.
        command: Program and arguments.
        host: ``cpu`` lets the CPU answer CUDA calls in every Python of the command.
        patched: Patches that every Python of the command applies in memory; ids, or paths of ``.yaml`` files.

    Raises:
        ConfigError: No such release, no such program, or no such patch.
        PatchError: A patch does not fit the release.
        EnvironmentMismatch: The release cannot be had, or another Megatron would be imported before it.
    """
    refuse_shadow()
    folder = overlay(version)
    if patched:
        from mcore_compat.patching import require_fit

        # Here, where it is one message, not in each Python of the command.
        require_fit(folder, patched)
    if note := outside_python_range(folder):
        print(note, file=sys.stderr)
    sys.stdout.flush()
    try:
        os.execvpe(command[0], list(command), environment(folder, host, patched))
    except OSError as error:
        raise ConfigError(
            f"cannot run {command[0]!r}: {error.strerror}",
            hint="mcore-compat matrix exec VERSION -- COMMAND ...",
        ) from error


def environment(tree: Path, host: Host | None = None, patched: Sequence[str] = ()) -> dict[str, str]:
    """This process's environment, for programs that see the Megatron in ``tree`` first, with stand-ins."""
    inherited = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    path = os.pathsep.join([str(tree), str(START_UP), *(entry for entry in inherited if entry != str(START_UP))])
    # Compiling kernels for a CPU takes longer than a test that was written for a GPU runs.
    cpu = {"MCORE_COMPAT_HOST": "cpu", "TORCHDYNAMO_DISABLE": os.environ.get("TORCHDYNAMO_DISABLE", "1")}
    names = {"MCORE_COMPAT_PATCHED": ",".join(map(_absolute, patched))} if patched else {}
    return os.environ | {"PYTHONPATH": path} | (cpu if host else {}) | names


def _absolute(patch: str) -> str:
    return str(Path(patch).absolute()) if patch.endswith((".yaml", ".yml")) else patch


def outside_python_range(folder: Path) -> str:
    """A note where the release in ``folder`` declares a Python range that leaves this one out, else nothing."""
    here = platform.python_version()
    for metadata in folder.glob("*.dist-info/METADATA"):
        declared = HeaderParser().parsestr(metadata.read_text(encoding="utf-8")).get("Requires-Python", "")
        if here not in SpecifierSet(declared):
            return f"note: {metadata.parent.name.removesuffix('.dist-info')} asks for Python {declared}, this is {here}"
    return ""


def refuse_shadow() -> None:
    """Raise :class:`EnvironmentMismatch` where a Megatron would be imported before any that PYTHONPATH names."""
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
