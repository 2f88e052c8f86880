"""A Megatron-Core release as a folder to put on PYTHONPATH: nothing is installed into the environment."""

from __future__ import annotations

import csv
import hashlib
import platform
import subprocess
import sys
import tempfile
import zipfile
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from mcore_compat.cache import default_cache
from mcore_compat.detect import find
from mcore_compat.errors import EnvironmentMismatch
from mcore_compat.matrix.rows import Fork, Release
from mcore_compat.matrix.table import row as row_of

Say = Callable[[str], None]


def overlay(version: str, cache: Path | None = None, say: Say | None = None) -> Path:
    """The folder that holds ``megatron/`` of that release; fetched, checked and unpacked once.

    Safe to call from several processes at once: each unpacks on its own and one of the results stays.

    Args:
        version: A release of the table, or a fork of ``matrix/forks.toml``: then its own folder.
        cache: Where overlays are kept; default ``$MCORE_COMPAT_CACHE`` or ``~/.cache/mcore_compat``.
        say: Told what takes time; default: standard error.

    Raises:
        ConfigError: No table has it.
        MegatronNotFound: The fork's folder holds no Megatron.
        EnvironmentMismatch: pip cannot fetch the wheel, or the wheel is not the one of the table.
    """
    row = row_of(version)
    if isinstance(row, Fork):
        return find(row.root).root
    folder = (cache or default_cache()) / "overlays" / row.version
    if not _complete(folder):
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix=f".{row.version}-", dir=folder.parent) as scratch:
                _place(_unpack(row, Path(scratch), say or _to_stderr), folder, Path(scratch))
        except OSError as error:
            raise EnvironmentMismatch(
                f"cannot write the overlay {folder}: {error}",
                hint="set MCORE_COMPAT_CACHE to a folder that can be written",
            ) from error
    return folder


def _unpack(row: Release, scratch: Path, say: Say) -> Path:
    wheel = _fetch(row, scratch, say)
    _check_wheel(row, wheel, say)
    unpacked = scratch / "unpacked"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(unpacked)
    damaged = [file.path for file in _recorded(unpacked) if not file.is_intact(unpacked)]
    if damaged or not _complete(unpacked):
        raise EnvironmentMismatch(
            f"{wheel.name} does not hold what its RECORD says: {', '.join(damaged[:3]) or 'no RECORD'}",
            hint="pip cache purge, then try again",
        )
    return unpacked


def _fetch(row: Release, scratch: Path, say: Say) -> Path:
    say(f"fetching megatron-core {row.version} (once)")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--only-binary=:all:", "--python-version", row.python, "--dest", str(scratch)]
    done = subprocess.run([*command, f"megatron-core=={row.version}"], capture_output=True, text=True)
    wheels = list(scratch.glob("megatron_core-*.whl"))
    if done.returncode or not wheels:
        reason = (done.stderr.strip().splitlines() or ["no wheel came"])[-1]
        raise EnvironmentMismatch(
            f"pip cannot fetch megatron-core {row.version}: {reason}",
            hint=f"connect to a package index, or unpack its wheel into {scratch.parent / row.version}",
        )
    return wheels[0]


def _check_wheel(row: Release, wheel: Path, say: Say) -> None:
    if platform.machine() not in ("x86_64", "AMD64"):
        say(f"{wheel.name}: the table knows the x86_64 wheel only; checked by its RECORD")
        return
    found = hashlib.sha256(wheel.read_bytes()).hexdigest()
    if found != row.sha256:
        raise EnvironmentMismatch(
            f"{wheel.name} is not the wheel of the table: sha256 {found}, expected {row.sha256}",
            hint="pip cache purge, then try again; if it stays, the package index serves something else",
        )


def _place(unpacked: Path, folder: Path, scratch: Path) -> None:
    """Rename into place; another process may do the same at the same moment, and either result is good."""
    if folder.exists() and not _complete(folder):
        with suppress(FileNotFoundError):
            folder.rename(scratch / "incomplete")
    try:
        unpacked.rename(folder)
    except OSError:
        if not _complete(folder):
            raise


class _Recorded(NamedTuple):
    """One file of a wheel's RECORD."""

    path: str
    digest: str
    size: int

    def is_there(self, root: Path) -> bool:
        """Whether the file exists in its full size."""
        try:
            return (root / self.path).stat().st_size == self.size
        except OSError:
            return False

    def is_intact(self, root: Path) -> bool:
        """Whether the file has its recorded content."""
        if not self.is_there(root):
            return False
        digest = hashlib.sha256((root / self.path).read_bytes()).digest()
        return self.digest == "sha256=" + urlsafe_b64encode(digest).rstrip(b"=").decode()


def _complete(folder: Path) -> bool:
    """Whether every file of RECORD is there: cleaners of temporary folders take files one by one."""
    files = list(_recorded(folder))
    return bool(files) and all(file.is_there(folder) for file in files)


def _recorded(folder: Path) -> Iterator[_Recorded]:
    for record in folder.glob("megatron_core-*.dist-info/RECORD"):
        with record.open(newline="", encoding="utf-8") as lines:
            # RECORD lists itself without hash and size.
            yield from (_Recorded(path, digest, int(size)) for path, digest, size in csv.reader(lines) if size)


def _to_stderr(message: str) -> None:
    print(message, file=sys.stderr)
