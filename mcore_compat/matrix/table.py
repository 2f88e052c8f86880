"""The release table: ``matrix/releases.toml`` of the repository, or its copy inside an installed package."""

from __future__ import annotations

import difflib
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from packaging.version import InvalidVersion, Version

from mcore_compat.errors import ConfigError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PACKAGED = Path(__file__).with_name("releases.toml")
IN_REPOSITORY = Path(__file__).parents[2] / "matrix" / "releases.toml"


@dataclass(frozen=True)
class Release:
    """One row of the table.

    Attributes:
        version: Megatron-Core release.
        python: Tag of the interpreter whose wheel is taken (``3.11``); the files run on others too.
        sha256: Of the x86_64 Linux wheel.
        note: What to know about it.
    """

    version: str
    python: str
    sha256: str
    note: str = ""


@lru_cache(maxsize=1)
def releases() -> tuple[Release, ...]:
    """Every row, oldest first."""
    path = PACKAGED if PACKAGED.is_file() else IN_REPOSITORY
    rows = tomllib.loads(path.read_text(encoding="utf-8"))["release"]
    return tuple(sorted((Release(**row) for row in rows), key=lambda row: Version(row.version)))


def release(version: str) -> Release:
    """The row of that release.

    Raises:
        ConfigError: The table has no such release; names the nearest ones.
    """
    known = {row.version: row for row in releases()}
    if version in known:
        return known[version]
    raise ConfigError(
        f"no release {version!r} in the table; nearest: {', '.join(_nearest(version, list(known)))}",
        hint="mcore-compat matrix list",
    )


def unverified(version: str | None) -> str | None:
    """Say so when ``version`` is newer than every row; ``None`` otherwise, also where it is no version."""
    newest = releases()[-1].version
    claimed = _parsed(version or "")
    if claimed is None or Version(claimed.public) <= Version(newest):
        return None
    return f"{version} is newer than {newest}, the newest release that mcore_compat is verified on"


def _nearest(version: str, known: list[str]) -> list[str]:
    """Known releases on both sides of a version; similar spellings of what is no version."""
    wanted = _parsed(version)
    if wanted is None:
        return difflib.get_close_matches(version, known, n=2, cutoff=0.0)
    older = [row for row in known if Version(row) < wanted][-1:]
    return older + [row for row in known if Version(row) > wanted][:1]


def _parsed(version: str) -> Version | None:
    try:
        return Version(version)
    except InvalidVersion:
        return None
