"""The tree that is patched: what its files hold, now and after the patches planned so far."""

from __future__ import annotations

import stat
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from mcore_compat.detect import Megatron, find
from mcore_compat.errors import ConfigError, MegatronNotFound, PatchError

# Ours, and one whose files run as programs.
_CLOSED = (".mcore-compat", ".git")


@dataclass(frozen=True)
class Change:
    """What a file held, what it is to hold (``None``: no such file), and the mode of a new one."""

    before: bytes | None
    after: bytes | None
    mode: int | None = None


@dataclass(frozen=True)
class Tree:
    """A folder to patch.

    Attributes:
        root: Its real path; paths of files are relative to it.
        megatron: The Megatron in it, ``None`` where there is none.
    """

    root: Path
    megatron: Megatron | None
    _planned: dict[str, Change] = field(default_factory=dict, repr=False)

    def locate(self, path: str) -> str:
        """Where ``path`` really is, links followed.

        Raises:
            PatchError: It leads out of the tree, into a closed folder, or to something that is no plain file.
        """
        pure = PurePosixPath(path)
        if pure.is_absolute() or ".." in pure.parts or "\\" in path or "\0" in path or not pure.parts:
            raise self._refusal(path, "must be relative, without ..")
        try:
            real = (self.root / pure).resolve()
        except (OSError, RuntimeError) as error:
            raise self._refusal(path, str(error)) from error
        if not real.is_relative_to(self.root):
            raise self._refusal(path, f"leads out of it, to {real}")
        if set(_CLOSED) & set(real.relative_to(self.root).parts):
            raise self._refusal(path, f"{' and '.join(_CLOSED)} are never patched")
        if real.exists() and not stat.S_ISREG(real.stat().st_mode):
            raise self._refusal(path, "is no plain file")
        return real.relative_to(self.root).as_posix()

    def _refusal(self, path: str, why: str) -> PatchError:
        return PatchError(f"{path!r} in {self.root}: {why}", hint="correct the path, or replace the link by a file")

    def read(self, path: str) -> bytes | None:
        """What a located file holds, planned changes included; ``None``: no such file.

        Raises:
            PatchError: It cannot be read.
        """
        if path in self._planned:
            return self._planned[path].after
        return read_file(self.root / path)

    def plan(self, path: str, change: Change) -> None:
        """Let later reads see ``change``."""
        first = self._planned.get(path, change)
        self._planned[path] = Change(first.before, change.after, change.mode or first.mode)

    def copy(self) -> Tree:
        """The same tree, to plan further without this one seeing it."""
        return replace(self, _planned=dict(self._planned))

    @property
    def changes(self) -> dict[str, Change]:
        """Every file whose content the plan changes."""
        return {path: change for path, change in self._planned.items() if change.before != change.after}


def open_tree(root: Path) -> Tree:
    """The tree at ``root``: the folder that holds ``megatron/`` where there is one, else ``root`` itself.

    Raises:
        ConfigError: No such folder.
    """
    try:
        megatron = find(root)
    except MegatronNotFound:
        if not root.is_dir():
            raise ConfigError(f"{root} is no folder", hint="--root takes the folder to patch") from None
        return Tree(root.resolve(), None)
    return Tree(megatron.root.resolve(), megatron)


def read_file(path: Path) -> bytes | None:
    """The file's bytes; ``None``: no such file."""
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise PatchError(f"cannot read {path}: {error.strerror}", hint="check its permissions") from error
