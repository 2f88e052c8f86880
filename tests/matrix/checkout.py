"""A copy of the repository to change: its package, its tables and the tests that suites are."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from mcore_compat.matrix.overlay import overlay
from tests.launch import ROOT

COPIED = ("mcore_compat", "matrix", "tests", "pyproject.toml", "README.md")


class Checkout:
    """A copy in ``folder``, with a cache of its own that has the overlays of this one."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "checkout"
        self.cache = folder / "cache"
        ignored = shutil.ignore_patterns("__pycache__", "yardstick")
        for name in COPIED:
            source, target = ROOT / name, self.root / name
            if source.is_dir():
                shutil.copytree(source, target, ignore=ignored)
            else:
                shutil.copy(source, target)
        self.cache.mkdir()

    def has(self, version: str, *, called: str | None = None) -> Path:
        """Put the overlay of a release into the cache, if need be under the name of another one."""
        target = self.cache / "overlays" / (called or version)
        shutil.copytree(overlay(version), target, ignore=shutil.ignore_patterns("__pycache__"))
        return target

    def change_table(self, old: str, new: str) -> None:
        """Put ``new`` in the place of the first ``old`` in the release table; of nothing: at its end."""
        path = self.root / "matrix" / "releases.toml"
        text = path.read_text(encoding="utf-8")
        assert old in text
        path.write_text(text.replace(old, new, 1) if old else text + new, encoding="utf-8")

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """``mcore-compat`` of this copy."""
        path = os.pathsep.join([str(self.root), *filter(None, [os.environ.get("PYTHONPATH")])])
        return subprocess.Popen(
            [sys.executable, "-m", "mcore_compat", *arguments],
            cwd=self.root,
            env={**os.environ, "PYTHONPATH": path, "MCORE_COMPAT_CACHE": str(self.cache)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """The same, to its end."""
        with self.start(*arguments) as process:
            output, errors = process.communicate()
        return subprocess.CompletedProcess(process.args, process.returncode, output, errors)
