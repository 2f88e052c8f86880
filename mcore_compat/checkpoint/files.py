"""The folder of a checkpoint: whole or not there, hashed, and found again.

::

    root/
      latest                      name of the newest whole checkpoint
      step-20/
        manifest.json             size and SHA-256 of every other file; steps, rates, trainer state; its own hash
        actor/weights/*.safetensors
        actor/optimizer/*.safetensors
        critic/...
        rng/*.safetensors         one per rank
      .step-30.partial/           what a killed process left; the next save removes it

A checkpoint gets its name by one rename after everything in it was handed to the disk, and only then does ``latest``
name it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mcore_compat.errors import CheckpointError

FORMAT = 1
MANIFEST, LATEST = "manifest.json", "latest"
_NAME = re.compile(r"step-(\d+)(?:\.\d+)?")
_CHUNK = 1 << 22
# relative path -> (bytes, SHA-256)
Hashes = dict[str, tuple[int, str]]


@dataclass(frozen=True)
class Manifest:
    """What a whole checkpoint says about itself.

    Attributes:
        folder: Of the checkpoint.
        files: Relative path to (bytes, SHA-256).
        content: All else.
    """

    folder: Path
    files: Hashes
    content: Mapping[str, Any]

    def part(self, prefix: str) -> list[str]:
        """The files of a part that are there, ``[]`` where the checkpoint has no such part.

        Raises:
            CheckpointError: Some of its files are there and some are not.
        """
        listed = [name for name in sorted(self.files) if name.startswith(f"{prefix}/")]
        absent = [name for name in listed if not (self.folder / name).is_file()]
        if absent and len(absent) < len(listed):
            raise damaged(self.folder / absent[0], "the manifest lists it, but it is not there")
        return [] if absent else listed


class Draft:
    """A checkpoint that is being written; rank 0 calls :meth:`begin` and :meth:`finish`, all ranks write between.

    Args:
        root: Folder of the checkpoints.
        step: Of this one.
    """

    def __init__(self, root: Path, step: int) -> None:
        self.folder = root / f".step-{step}.partial"
        self._root, self._step = root, step

    def begin(self) -> None:
        """Make the folder, and sweep up what killed processes left."""
        self._root.mkdir(parents=True, exist_ok=True)
        for leftover in [*self._root.glob(".step-*"), *self._root.glob(f".{LATEST}")]:
            _remove(leftover)
        self.folder.mkdir()

    def write(self, name: str, data: bytes) -> Hashes:
        """Write one file through to the disk."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        _write_through(path, data)
        return {name: (len(data), hashlib.sha256(data).hexdigest())}

    def finish(self, files: Hashes, content: Mapping[str, Any], keep: int | None) -> Path:
        """Name it, point to it, and remove older ones.

        Args:
            files: Of all ranks.
            content: What else the manifest says.
            keep: How many checkpoints stay, this one included; ``None``: all.
        """
        self.write(MANIFEST, _manifest_text({"format": FORMAT, "files": files, **content}))
        for folder, _, _ in os.walk(self.folder):
            _sync(Path(folder))
        older = [path for path in _checkpoints(self._root) if _step_of(path) != self._step]
        replaced = [path for path in _checkpoints(self._root) if _step_of(path) == self._step]
        target = self._free_name()
        self.folder.rename(target)
        _sync(self._root)
        _write_through(self._root / f".{LATEST}", target.name.encode())
        (self._root / f".{LATEST}").replace(self._root / LATEST)
        _sync(self._root)
        for path in [*replaced, *(older[keep - 1 :] if keep else [])]:
            _remove(path)
        return target

    def _free_name(self) -> Path:
        number, target = 0, self._root / f"step-{self._step}"
        while target.exists():
            number += 1
            target = self._root / f"step-{self._step}.{number}"
        return target


def latest(root: Path) -> Path | None:
    """The newest whole checkpoint below ``root``, or ``root`` where it is one itself; ``None``: there is none.

    Raises:
        CheckpointError: ``latest`` names something that is not there.
    """
    root = Path(root)
    if (root / MANIFEST).is_file():
        return root
    pointer = root / LATEST
    if not pointer.is_file():  # a process may have been killed before it wrote the first one
        return next(iter(_checkpoints(root)), None)
    name = pointer.read_text(encoding="utf-8", errors="replace").strip()
    if not _NAME.fullmatch(name) or not (root / name / MANIFEST).is_file():
        raise damaged(pointer, f"it names {name!r}, which is no checkpoint there")
    return root / name


def read_manifest(folder: Path) -> Manifest:
    """Read and check the manifest.

    Raises:
        CheckpointError: It is damaged, or of a newer format.
    """
    path = folder / MANIFEST
    try:
        written = json.loads(path.read_text(encoding="utf-8"))
        content = written["content"]
        if written["sha256"] != _digest(content):
            raise ValueError("its content is not what was written")
        if content["format"] > FORMAT:
            raise CheckpointError(
                f"{path} has format {content['format']}, this version reads up to {FORMAT}",
                hint="pip install --upgrade mcore-compat",
            )
        files = {str(name): (int(size), str(digest)) for name, (size, digest) in content["files"].items()}
    except (ValueError, KeyError, TypeError) as error:
        raise damaged(path, str(error)) from error
    return Manifest(folder, files, content)


def damage(manifest: Manifest, names: list[str]) -> Iterator[str]:
    """Compare files with the manifest; yields a text for each that differs."""
    for name in names:
        size, digest = manifest.files[name]
        path = manifest.folder / name
        if not path.is_file():
            yield f"{path}: the manifest lists it, but it is not there"
        elif path.stat().st_size != size:
            yield f"{path}: {path.stat().st_size} bytes, expected {size}"
        elif _file_digest(path) != digest:
            yield f"{path}: its content is not what was written"


def damaged(path: Path, what: str) -> CheckpointError:
    """The error for a file that cannot be trusted."""
    return CheckpointError(f"{path}: {what}", hint=f"resume from another checkpoint in {path.parent.parent}")


def _checkpoints(root: Path) -> list[Path]:
    """Whole checkpoints, the one written last first."""
    found = [path for path in root.glob("step-*") if _NAME.fullmatch(path.name) and (path / MANIFEST).is_file()]
    return sorted(found, key=lambda path: (path / MANIFEST).stat().st_mtime_ns, reverse=True)


def _step_of(path: Path) -> int:
    match = _NAME.fullmatch(path.name)
    assert match is not None, "only names of checkpoints come here"
    return int(match[1])


def _manifest_text(content: Mapping[str, Any]) -> bytes:
    return json.dumps({"sha256": _digest(content), "content": content}, indent=1, sort_keys=True).encode()


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _file_digest(path: Path) -> str:
    found = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            found.update(chunk)
    return found.hexdigest()


def _write_through(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove(path: Path) -> None:
    """Under a name that is no checkpoint's first, so that half of it is never taken for one."""
    hidden = path if path.name.startswith(".") else path.with_name(f".{path.name}.old")
    if hidden != path:
        path.rename(hidden)
    if hidden.is_dir():
        shutil.rmtree(hidden)
    else:
        hidden.unlink()
