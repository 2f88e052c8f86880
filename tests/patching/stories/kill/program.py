"""Kills processes at chosen moments of an ``apply`` or ``revert`` and says what is left each time.

A moment is just before a call on a file of the tree that Python audits. Run as ``program.py FOLDER PATCH COUNT``.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from mcore_compat import patching
from tests.patching.trees import snapshot, tree_with

Act = Callable[[Path], object]
FOLDER = sys.argv[1]
_armed: list[int] = []


def _hook(event: str, arguments: object) -> None:
    if _armed and event.startswith(("open", "os.", "shutil.")) and FOLDER in repr(arguments):
        _armed[0] -= 1
        if _armed[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def moments(act: Act, tree: Path) -> int:
    """How many moments ``act`` has."""
    _armed[:] = [1 << 30]
    act(tree)
    return (1 << 30) - _armed.pop()


def killed(act: Act, tree: Path, moment: int) -> bool:
    """Run ``act`` in a child that dies at that moment; whether it died."""
    child = os.fork()
    if child == 0:
        _armed[:] = [moment]
        act(tree)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def main(folder: Path, patch: Path, count: int) -> None:
    """Print one JSON object per kill."""
    sys.addaudithook(_hook)
    pristine = tree_with(folder / "pristine", beta="x = 1\n")
    patched = shutil.copytree(pristine, folder / "patched")

    def apply(tree: Path) -> object:
        return patching.apply(tree, files=[patch])

    # What is imported on first use would count as moments.
    first = shutil.copytree(pristine, folder / "first")
    apply(first), patching.revert(first)
    sizes = {"apply": moments(apply, patched)}
    sizes["revert"] = moments(patching.revert, shutil.copytree(patched, folder / "counted"))
    whole = {"apply": snapshot(patched), "revert": snapshot(pristine)}
    acts: dict[str, Act] = {"apply": apply, "revert": patching.revert}
    starts = {"apply": pristine, "revert": patched}
    choose = random.Random(5)
    for number in range(count):
        name, then = (list(acts)[number >> shift & 1] for shift in (0, 1))
        moment = choose.randint(1, sizes[name])
        tree = shutil.copytree(starts[name], folder / f"{number}")
        died = killed(acts[name], tree, moment)
        clean = snapshot(tree) in whole.values()
        told = patching.status(tree).interrupted
        acts[then](tree)
        print(
            json.dumps(
                {
                    "act": name,
                    "then": then,
                    "moment": moment,
                    "died": died,
                    "half": not clean,
                    "told": told,
                    "whole": snapshot(tree) == whole[then],
                }
            )
        )


if __name__ == "__main__":
    main(Path(FOLDER), Path(sys.argv[2]), int(sys.argv[3]))
