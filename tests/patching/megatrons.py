"""Copies of real Megatron trees that tests may patch."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from mcore_compat.matrix.overlay import overlay

# A clone of Megatron-LM, bare or not, with its tags. The optimizer of 0.4 and 0.5 is in no wheel.
GIT = "MEGATRON_LM_GIT"
Content = dict[str, tuple[int, bytes]]


def copy_of(version: str, folder: Path) -> Path:
    """The Python files of that release's wheel under ``folder``."""
    everything_else = shutil.ignore_patterns("*.so", "*.cpp", "__pycache__")
    shutil.copytree(overlay(version) / "megatron", folder / "megatron", ignore=everything_else)
    return folder


def checkout_of(tag: str, folder: Path) -> Path:
    """The Python files of that tag of the Megatron-LM repository; skips the test where no clone given has it."""
    clone = os.environ.get(GIT)
    if not clone:
        pytest.skip(f"needs a clone of Megatron-LM, whose path {GIT} gives")
    git = ["git", "-C", clone]
    if not subprocess.run([*git, "tag", "--list", tag], check=True, capture_output=True).stdout:
        pytest.skip(f"the clone of Megatron-LM that {GIT} gives has no tag {tag}")
    archive = [*git, "archive", "--format=tar", tag, "megatron"]
    data = subprocess.run(archive, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(data)) as files:
        files.extractall(folder, [each for each in files if each.name.endswith(".py")], filter="data")
    return folder


def content(root: Path) -> Content:
    """Mode and bytes of every file under ``root``."""
    files = (path for path in sorted(root.rglob("*")) if path.is_file())
    return {path.relative_to(root).as_posix(): (path.stat().st_mode, path.read_bytes()) for path in files}
