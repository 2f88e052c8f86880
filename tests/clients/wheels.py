"""Published frameworks, fetched by pip at run time and unpacked; nothing is installed."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import pytest

from mcore_compat.cache import default_cache


def client(name: str, version: str) -> Path:
    """The folder with the files of that release; skips the test where no index is reachable."""
    folder = default_cache() / "clients" / f"{name}-{version}"
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            with zipfile.ZipFile(_fetch(f"{name}=={version}", scratch)) as archive:
                archive.extractall(Path(scratch) / "files")
            (Path(scratch) / "files").rename(folder)
    return folder


def _fetch(requirement: str, folder: str) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--dest", folder]
    done = subprocess.run([*command, requirement], capture_output=True, text=True)
    wheels = list(Path(folder).glob("*.whl"))
    if done.returncode or not wheels:
        pytest.skip(f"pip cannot fetch {requirement}: {(done.stderr.strip().splitlines() or ['no wheel'])[-1]}")
    return wheels[0]
