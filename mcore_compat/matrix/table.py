"""The release table: ``matrix/releases.toml`` of the repository, or its copy inside an installed package."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from packaging.version import InvalidVersion, Version

from mcore_compat.errors import ConfigError
from mcore_compat.matrix.rows import Fork, Release, read_forks, read_releases

PACKAGED = Path(__file__).with_name("releases.toml")
IN_REPOSITORY = Path(__file__).parents[2] / "matrix" / "releases.toml"


@lru_cache(maxsize=1)
def releases() -> tuple[Release, ...]:
    """Every row, oldest first."""
    return read_releases(PACKAGED if PACKAGED.is_file() else IN_REPOSITORY)


@lru_cache(maxsize=1)
def forks() -> tuple[Fork, ...]:
    """The source trees that ``matrix/forks.toml`` of the checkout names; none where there is no checkout."""
    path = IN_REPOSITORY.with_name("forks.toml")
    return read_forks(path) if path.is_file() else ()


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


def row(name: str) -> Release | Fork:
    """The fork or the release of that name.

    Raises:
        ConfigError: No table has it.
    """
    return next((fork for fork in forks() if fork.name == name), None) or release(name)


def expected(entry: Release | Fork) -> Mapping[str, str]:
    """Seam to the variant that a release or fork takes."""
    return entry.expect if isinstance(entry, Release) else {**release(entry.base).expect, **entry.expect}


def unverified(version: str | None) -> str | None:
    """Say so when ``version`` is newer than every row; ``None`` otherwise, also where it is no version."""
    newest = releases()[-1].version
    claimed = _parsed(version or "")
    if claimed is None or Version(claimed.public) <= Version(newest):
        return None
    return f"{version} is newer than {newest}, the newest release that mcore_compat is verified on"


def at_least(version: str, first: str, *, required: bool = False) -> bool:
    """Whether release ``version`` is ``first`` or a later one.

    Raises:
        ConfigError: ``version`` is no version; or it is older, where ``required``.
    """
    found = _parsed(version)
    if found is None or (required and found < Version(first)):
        raise ConfigError(
            f"{version!r} is no release of Megatron-Core from {first} on", hint="mcore-compat matrix list"
        )
    return found >= Version(first)


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
