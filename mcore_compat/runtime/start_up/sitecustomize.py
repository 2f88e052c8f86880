"""Run by every Python under ``matrix exec`` before its program, which need not know mcore_compat.

Nothing is imported here: what the program never imports is never prepared for.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

HOST = os.environ.get("MCORE_COMPAT_HOST")
PATCHED = os.environ.get("MCORE_COMPAT_PATCHED")


class Watch(MetaPathFinder):
    """Prepares torch once it is imported, and for Megatron before it is."""

    def __init__(self) -> None:
        self._pending: dict[str, Callable[[], ModuleSpec | None]] = {"megatron": _megatron}
        if HOST:
            self._pending["torch"] = _torch

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Act on the first import of each; leave the rest to others."""
        act = self._pending.pop(fullname, None)
        return act() if act else None


def _megatron() -> ModuleSpec | None:
    if HOST:
        importlib.import_module("torch")
    from mcore_compat.runtime.session import stand_in

    stand_in()
    if PATCHED:
        from mcore_compat.patching import load

        load(PATCHED.split(","))
    return importlib.util.find_spec("megatron")


def _torch() -> ModuleSpec | None:
    spec = importlib.util.find_spec("torch")
    if spec and spec.loader:
        _after(spec.loader, _become_host)
    return spec


def _become_host() -> None:
    from mcore_compat.runtime.session import become_host

    become_host()


def _after(loader: Loader, act: Callable[[], None]) -> None:
    run = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        run(module)
        act()

    loader.exec_module = exec_module  # type: ignore[method-assign]


def _run_shadowed() -> None:
    """Run the ``sitecustomize`` that Python would have run without this one."""
    here = os.path.dirname(os.path.abspath(__file__))
    spec = PathFinder.find_spec("sitecustomize", [entry for entry in sys.path if os.path.abspath(entry) != here])
    if spec and spec.loader:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


sys.meta_path.insert(0, Watch())
_run_shadowed()
