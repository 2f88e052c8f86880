"""The patches that come with the package, in order, and those that a caller names by file."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from pathlib import Path

from mcore_compat.errors import ConfigError
from mcore_compat.patching.format import Rules, read
from mcore_compat.patching.outcome import Patch
from mcore_compat.patching.rules import RulePatch

PACKAGED = Path(__file__).with_name("patches")
IN_REPOSITORY = Path(__file__).parents[2] / "patches"
_NAMES_HINT = "mcore-compat patch list shows the ids; a file's name ends in .yaml, .yml, .patch or .diff"


def folder() -> Path:
    """Where the patches of the package are."""
    return PACKAGED if PACKAGED.is_dir() else IN_REPOSITORY


def series() -> tuple[str, ...]:
    """Every id, in the order in which patches are applied."""
    lines = (folder() / "series").read_text(encoding="utf-8").splitlines()
    return tuple(line.strip() for line in lines if line.strip() and not line.startswith("#"))


def rules(patch_id: str) -> Rules:
    """The patch of that id.

    Raises:
        ConfigError: There is none.
    """
    # The tests of this package hold every one of them against the schema, which costs more than to read it.
    return read(folder() / f"{_known(patch_id)}.yaml", check=False)


def select(only: Iterable[str] | None = None, files: Sequence[Path] = ()) -> list[Patch]:
    """The patches to work on.

    Args:
        only: Ids; ``None``: all.
        files: ``.yaml`` rules or unified diffs; where there are any, they are what ``only`` picks from.

    Raises:
        ConfigError: An id is not among them, there is no such file, or two files have the same id.
        PatchError: A file is no patch.
    """
    if files:
        return _picked([_from_file(path) for path in files], only)
    wanted = None if only is None else {_known(name) for name in only}
    return [RulePatch(rules(name)) for name in series() if wanted is None or name in wanted]


def _from_file(path: Path) -> Patch:
    if not path.is_file():
        raise ConfigError(f"there is no file {path}", hint=_NAMES_HINT)
    if path.suffix in (".yaml", ".yml"):
        return RulePatch(read(path))
    from mcore_compat.patching.unified import read_diff

    return read_diff(path)


def _picked(patches: list[Patch], only: Iterable[str] | None) -> list[Patch]:
    ids = [patch.id for patch in patches]
    if twice := sorted({name for name in ids if ids.count(name) > 1}):
        raise ConfigError(f"two patches are named {twice[0]!r}", hint="rename one of the files")
    wanted = {*ids} if only is None else {*only}
    if unknown := sorted(wanted - {*ids}):
        raise ConfigError(f"no patch {unknown[0]!r} among {', '.join(ids)}", hint="leave --only out, or correct it")
    return [patch for patch in patches if patch.id in wanted]


def _known(patch_id: str) -> str:
    known = series()
    if patch_id in known:
        return patch_id
    nearest = difflib.get_close_matches(patch_id, known, n=2)
    close = f"; nearest: {', '.join(nearest)}" if nearest else ""
    raise ConfigError(f"no patch {patch_id!r}{close}", hint=_NAMES_HINT)
