"""Reading the tables: rows of TOML, in which what a row leaves out is as in the row before."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from packaging.version import Version

from mcore_compat.errors import ConfigError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Level = Literal["probe", "import", "contract"]
LEVELS: tuple[Level, ...] = ("probe", "import", "contract")
_INHERITED = ("python", "needs", "expect")


@dataclass(frozen=True)
class Release:
    """One row of the release table.

    Attributes:
        version: Megatron-Core release.
        python: Tag of the interpreter whose wheel is taken (``3.11``); the files run on others too.
        sha256: Of the x86_64 Linux wheel.
        needs: Requirements without which it does not run.
        expect: Seam to the variant that it takes.
        level: How far it is verified.
        note: What to know about it; the reason where the level is below ``contract``.
    """

    version: str
    python: str
    sha256: str
    needs: Sequence[str] = field(default=(), hash=False)
    expect: Mapping[str, str] = field(default_factory=dict, hash=False)
    level: Level = "contract"
    note: str = ""


@dataclass(frozen=True)
class Fork:
    """A source tree on this machine.

    Attributes:
        name: What commands call it.
        root: The directory that holds ``megatron/``.
        base: The release that it comes from.
        expect: Seams where it takes another variant than its base.
        level: How far it is verified; never ``contract``.
        note: What to know about it.
    """

    name: str
    root: Path
    base: str
    expect: Mapping[str, str] = field(default_factory=dict, hash=False)
    level: Level = "import"
    note: str = ""


def read_releases(path: Path) -> tuple[Release, ...]:
    """Every row of a release table, oldest first.

    Raises:
        ConfigError: A row has an unknown key or level, lacks a key, or gives no reason for a level below ``contract``.
    """
    found: list[Release] = []
    before: dict[str, Any] = {}
    for row in _rows(path, "release"):
        before = _inherit(before, row)
        found.append(Release(**_checked(Release, {**row, **before}, path)))
    return tuple(sorted(found, key=lambda row: Version(row.version)))


def read_forks(path: Path) -> tuple[Fork, ...]:
    """Every tree of a table of forks; a relative root starts at the table's folder.

    Raises:
        ConfigError: A row has an unknown key or level, lacks a key, or gives no reason for a level below ``import``.
    """
    rows = [_checked(Fork, row, path) for row in _rows(path, "fork")]
    return tuple(Fork(**{**row, "root": path.parent / Path(row["root"]).expanduser()}) for row in rows)


def _rows(path: Path, kind: str) -> list[dict[str, Any]]:
    try:
        rows: list[dict[str, Any]] = tomllib.loads(path.read_text(encoding="utf-8")).get(kind, [])
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {error}", hint=f"it holds rows that start with [[{kind}]]") from error
    return rows


def _inherit(before: Mapping[str, Any], row: Mapping[str, Any]) -> dict[str, Any]:
    own = {key: row[key] for key in _INHERITED if key in row}
    return {**before, **own, "expect": {**before.get("expect", {}), **row.get("expect", {})}}


def _checked(kind: type[Release] | type[Fork], row: Mapping[str, Any], path: Path) -> Mapping[str, Any]:
    keys = {item.name: item for item in fields(kind)}
    where = f"{path}: {next(iter(row.values()), 'empty row')}"
    required = {name for name, item in keys.items() if item.default is MISSING and item.default_factory is MISSING}
    if wrong := [*sorted(row.keys() - keys.keys()), *sorted(required - row.keys())]:
        raise ConfigError(f"{where}: unknown or missing: {', '.join(wrong)}", hint=f"keys are {', '.join(keys)}")
    full: Any = keys["level"].default
    level = row.get("level", full)
    allowed = LEVELS[: LEVELS.index(full) + 1]
    if level not in allowed:
        raise ConfigError(f"{where}: no level {level!r}", hint=f"levels are {', '.join(allowed)}")
    if level != full and not row.get("note"):
        raise ConfigError(f"{where}: level {level} without a reason", hint="write the reason as the row's note")
    return row
