"""The two sides of ``matrix diff``: each runs in a process of its own, both at a time."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mcore_compat.detect import find
from mcore_compat.errors import EnvironmentMismatch
from mcore_compat.matrix.diff import Trace
from mcore_compat.matrix.execute import environment, refuse_shadow
from mcore_compat.matrix.overlay import overlay

# In a layer above this one, and only ever started.
_PROGRAM = "mcore_compat.cli._trace"
_SHOWN_LINES = 12


@dataclass(frozen=True)
class Side:
    """A Megatron to run.

    Attributes:
        name: For people.
        tree: The folder that holds ``megatron/``.
    """

    name: str
    tree: Path


def release_side(version: str) -> Side:
    """A release of the table.

    Raises:
        ConfigError: The table has no such release.
        EnvironmentMismatch: It cannot be had.
    """
    return Side(version, overlay(version))


def root_side(root: Path) -> Side:
    """A tree on this machine.

    Raises:
        MegatronNotFound: There is no Megatron at ``root``.
    """
    found = find(root)
    return Side(str(found), found.root)


def run_sides(sides: Sequence[Side], folder: Path, steps: int, config: Path | None) -> list[Trace]:
    """Run the steps on each side.

    Args:
        sides: What to run.
        folder: Gets one folder of tensors per side.
        steps: Optimizer steps.
        config: Settings; ``None``: the demo's.

    Raises:
        EnvironmentMismatch: Another Megatron would be imported first; or a side stopped before it was done, and the
            text holds the end of what it said.
    """
    refuse_shadow()
    folders = [folder / str(number) for number in range(len(sides))]
    running = [_start(side, place, steps, config) for side, place in zip(sides, folders, strict=True)]
    said = [process.communicate()[0] for process in running]
    for side, process, text in zip(sides, running, said, strict=True):
        if process.returncode:
            tail = "\n".join(text.splitlines()[-_SHOWN_LINES:])
            raise EnvironmentMismatch(f"{side.name} stopped with {process.returncode} before it was done\n{tail}")
    return [Trace.read(place) for place in folders]


def _start(side: Side, folder: Path, steps: int, config: Path | None) -> subprocess.Popen[str]:
    folder.mkdir()
    command = [sys.executable, "-m", _PROGRAM, str(folder), str(steps), *([str(config)] if config else [])]
    return subprocess.Popen(
        command, env=environment(side.tree), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
