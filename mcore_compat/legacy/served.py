"""Modules of an era that are not there: found last of all, and made of the modules of this package."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from mcore_compat.audit.table import Row, rows
from mcore_compat.audit.uses import Name
from mcore_compat.detect import Facts
from mcore_compat.legacy.warn import NotServed, told

_PACKAGE = "mcore_compat.legacy"
_ROOT = "megatron"
_SUBMODULES = {
    "megatron.optimizer": ("optimizer", "distrib_optimizer", "grad_scaler", "clip_grads"),
}


def served_modules(era: str, facts: Facts) -> dict[str, Row]:
    """Modules of the era outside ``megatron.core`` that the tree lacks, and the row that speaks of each."""
    found: dict[str, Row] = {}
    for row in rows():
        if not isinstance(row.use, Name) or not row.works_on(era) or ":" in row.served:
            continue
        for name in (row.use.module, *(f"{row.use.module}.{sub}" for sub in _SUBMODULES.get(row.use.module, ()))):
            if _is_absent(name, facts) and (row.served or not name.startswith("megatron.core.")):
                found.setdefault(name, row)
                if row.served and not row.use.names:  # speaks of the whole module
                    found[name] = row
    return found


def _is_absent(name: str, facts: Facts) -> bool:
    if name == _ROOT:  # a namespace package is there, but has no names
        return not facts.defines(f"{_ROOT}:get_args")
    return name.rpartition(".")[2].islower() and not facts.has_module(name)


class ServedModules(MetaPathFinder):
    """A finder behind all others.

    Args:
        modules: Name to the row of the table that speaks of it.
    """

    def __init__(self, modules: Mapping[str, Row]) -> None:
        self._modules = modules
        self._before: dict[str, Any] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """Modules that are served."""
        return tuple(sorted(name for name, row in self._modules.items() if row.served))

    def install(self) -> None:
        """Start answering imports."""
        sys.meta_path.append(self)
        if _ROOT in self._modules:
            vars(importlib.import_module(_ROOT))["__getattr__"] = _getter(_ROOT, self._modules[_ROOT])

    def remove(self) -> None:
        """Stop answering, and leave no served module behind."""
        sys.meta_path.remove(self)
        for name in self._modules:
            if name != _ROOT:
                sys.modules.pop(name, None)
        if _ROOT in self._modules:
            vars(sys.modules[_ROOT]).pop("__getattr__", None)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Answer for the modules of the era.

        Raises:
            NotServed: The era had the module, and it cannot be served.
        """
        row = self._modules.get(fullname)
        if row is None:
            return None
        if not row.served:
            raise NotServed(f"{fullname} cannot be served here: {row.change}", hint=row.instead)
        return ModuleSpec(fullname, _Served(row), is_package=True)


class _Served(Loader):
    def __init__(self, row: Row) -> None:
        self._row = row

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return ModuleType(spec.name, f"Served by mcore_compat: {self._row.change}")

    def exec_module(self, module: ModuleType) -> None:
        vars(module)["__getattr__"] = _getter(module.__name__, self._row)


def _getter(module: str, default: Row) -> Any:
    """``__getattr__`` of a served module; what it found once is an ordinary attribute from then on."""

    def get(name: str) -> Any:
        row = _row_of(module, name) or _row_of(module, "") or default
        # Python's import asks a package for its submodules too.
        if name.startswith("__") or (module == _ROOT and not _names(row, name)):
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        source = importlib.import_module(f"{_PACKAGE}.{row.served}") if row.served else None
        if not hasattr(source, name) or name not in getattr(source, "__all__", [name]):
            raise NotServed(f"{module}.{name} cannot be served here: {row.change}", hint=row.instead)
        told(f"{module}.{name}", row.instead)
        value = getattr(source, name)
        vars(sys.modules[module])[name] = value
        return value

    return get


def _row_of(module: str, name: str) -> Row | None:
    """The first row that names exactly this; no name: the one of the whole module."""
    return next((row for row in rows() if _names(row, name) and row.use.module == module), None)  # type: ignore[union-attr]


def _names(row: Row, name: str) -> bool:
    return isinstance(row.use, Name) and (name in row.use.names if name else not row.use.names)
