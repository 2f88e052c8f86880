"""``install()`` and ``uninstall()``."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from types import ModuleType

from mcore_compat.audit.eras import newest_of
from mcore_compat.audit.table import Row, rows
from mcore_compat.audit.uses import Name
from mcore_compat.detect import Facts, find
from mcore_compat.errors import EnvironmentMismatch
from mcore_compat.legacy.changes import CHANGES, Change
from mcore_compat.legacy.served import ServedModules, served_modules
from mcore_compat.legacy.warn import forget, told
from mcore_compat.runtime import prepare
from mcore_compat.runtime.patches import Patch, Patches


@dataclass(frozen=True)
class Redirects:
    """What ``install()`` put in place.

    Attributes:
        era: Newest release of the era.
        modules: Modules of that era that are served because they are not there.
        changes: What was changed in the Megatron that is there, and why.
    """

    era: str
    modules: tuple[str, ...]
    changes: tuple[str, ...]

    def __str__(self) -> str:
        lines = [f"era: {self.era}", *(f"module: {name}" for name in self.modules)]
        return "\n".join([*lines, *(f"change: {change}" for change in self.changes)])


@dataclass
class _Session:
    redirects: Redirects
    finder: ServedModules
    patches: Patches


_session: _Session | None = None


def install(era: str = "0.4", *, config_attributes: tuple[str, ...] = ("config", "megatron_config")) -> Redirects:
    """Serve the names and call shapes of ``era`` on the Megatron that is there; calls ``prepare()`` first.

    Must come before the program imports megatron. Loads torch and Megatron.

    Args:
        era: Release, or minor release, that the program was written for: ``0.4`` or ``0.12.3``.
        config_attributes: Where models may keep Megatron's configuration, by preference;
            ``megatron.core.utils.get_model_config`` returns the first that is one.

    Returns:
        What was redirected; the same again when called again for the same era.

    Raises:
        ConfigError: No release of the table is of that era.
        EnvironmentMismatch: Megatron is imported already, or another era is installed.
        MegatronNotFound: No Megatron on ``sys.path``.
    """
    global _session
    version = newest_of(era)
    if _session is None:
        prepare()
        _session = _start(version, config_attributes)
    elif _session.redirects.era != version:
        raise EnvironmentMismatch(
            f"era {_session.redirects.era} is installed, not {version}",
            hint="one program, one era: call legacy.uninstall() first, or start another process",
        )
    return _session.redirects


def uninstall() -> None:
    """Take every redirect back; names that a program has imported by now stay with it."""
    global _session
    if _session is not None:
        _session.patches.revert()
        _session.finder.remove()
        forget()
        _session = None


def _start(version: str, config_attributes: tuple[str, ...]) -> _Session:
    facts = Facts(find().root)
    of_era = [row for row in rows() if row.served and row.works_on(version)]
    finder = ServedModules(served_modules(version, facts))
    finder.install()
    patches = Patches()
    changes = [change for change in CHANGES if change.needed(version, facts)]
    for change in changes:
        for patch in change.patches(config_attributes):
            patches.apply([patch, *_copies(patch)])
    patches.apply(_names(of_era, facts))
    return _Session(Redirects(version, finder.names, tuple(change.why for change in changes)), finder, patches)


def _names(of_era: Iterable[Row], facts: Facts) -> Iterator[Patch]:
    """Single names of modules that are there otherwise, from ``module:name`` of the table."""
    missing: dict[str, dict[str, Row]] = {}
    for row in of_era:
        if isinstance(row.use, Name) and ":" in row.served and facts.has_module(row.use.module):
            there = vars(importlib.import_module(row.use.module))
            missing.setdefault(row.use.module, {}).update(dict.fromkeys(row.use.names - there.keys(), row))
    for module, names in missing.items():
        if names:
            yield Patch(importlib.import_module(module), "__getattr__", _getter(module, names), "names of the era")


def _getter(module: str, names: dict[str, Row]) -> Callable[[str], object]:
    def get(name: str) -> object:
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        told(f"{module}.{name}", names[name].instead)
        home, _, served = names[name].served.partition(":")
        value: object = getattr(importlib.import_module(f"mcore_compat.legacy.{home}"), served)
        return value

    return get


def _copies(patch: Patch) -> Iterator[Patch]:
    """The same replacement wherever Megatron's modules have imported the old value by name."""
    old = vars(patch.target).get(patch.name) if isinstance(patch.target, ModuleType) else None
    if old is None:
        return
    for name, module in list(sys.modules.items()):
        if name.startswith("megatron.") and module is not patch.target and vars(module).get(patch.name) is old:
            yield Patch(module, patch.name, patch.value, patch.why)


__all__ = ["Change", "Redirects", "install", "uninstall"]
