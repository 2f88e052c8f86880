"""The import hook: shows stand-ins to those who need them, and repairs Megatron modules as they load."""

from __future__ import annotations

import importlib.machinery
import importlib.metadata
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from types import ModuleType
from typing import NoReturn

from mcore_compat.runtime.standins import StandIn

Repairs = Mapping[str, Callable[[ModuleType], None]]


class Hook(MetaPathFinder):
    """A finder in front of ``sys.meta_path``.

    Args:
        standins: Package to stand-in, for absent packages only.
        importers: Package to the Megatron modules that import it without a guard.
        repairs: Megatron module to the function called with it once its body has run.
    """

    def __init__(
        self,
        standins: Mapping[str, StandIn],
        importers: Mapping[str, frozenset[str]],
        repairs: Repairs,
    ) -> None:
        self._standins = standins
        self._importers = importers
        self._repairs = repairs
        self._visible: frozenset[str] = frozenset()
        self._modules: dict[str, ModuleType] = {}

    def install(self) -> None:
        """Start answering imports."""
        sys.meta_path.insert(0, self)

    def remove(self) -> None:
        """Stop answering, and leave no stand-in behind."""
        sys.meta_path.remove(self)
        self._hide()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Wrap the loading of Megatron modules; serve visible stand-ins; leave the rest to others."""
        top = fullname.partition(".")[0]
        if top == "megatron":
            return self._megatron_spec(fullname, path, target)
        return self._standin_spec(fullname, top) if top in self._visible else None

    def find_distributions(
        self, context: importlib.metadata.DistributionFinder.Context
    ) -> Iterator[importlib.metadata.Distribution]:
        """Answer version questions about packages that are stood in for."""
        for standin in self._standins.values():
            if standin.distribution and (context.name or "").replace("_", "-") in (
                "",
                standin.distribution[0],
            ):
                yield _Distribution(*standin.distribution)

    def _megatron_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None) -> ModuleSpec | None:
        spec = find_after(self, name, path, target)
        if spec and isinstance(spec.loader, SourceFileLoader):
            self._wrap(spec.loader, name)
        return spec

    def _wrap(self, loader: SourceFileLoader, name: str) -> None:
        run = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            with self._shown_to(name):
                run(module)
            if name in self._repairs:
                self._repairs[name](module)

        loader.exec_module = exec_module  # type: ignore[method-assign]  # keeps the loader's type for inspect

    @contextmanager
    def _shown_to(self, name: str) -> Iterator[None]:
        before = self._visible
        self._hide()
        self._visible = frozenset(top for top in self._standins if name in self._importers[top])
        try:
            yield
        finally:
            self._hide()
            self._visible = before

    def _hide(self) -> None:
        for name, module in self._modules.items():
            if sys.modules.get(name) is module:
                del sys.modules[name]

    def _standin_spec(self, name: str, top: str) -> ModuleSpec | None:
        if top not in self._modules:
            self._modules.update(self._standins[top].build())
        if name not in self._modules:
            return None
        return ModuleSpec(name, _Ready(self._modules[name]), is_package=True)


def find_after(
    finder: MetaPathFinder, name: str, path: Sequence[str] | None, target: ModuleType | None
) -> ModuleSpec | None:
    """The spec that an import would find if ``finder`` and those before it did not answer."""
    later = sys.meta_path[sys.meta_path.index(finder) + 1 :]
    return next((found for other in later if (found := other.find_spec(name, path, target))), None)


class _Ready(Loader):
    def __init__(self, module: ModuleType) -> None:
        self._module = module

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        return None


class _Distribution(importlib.metadata.Distribution):
    def __init__(self, name: str, version: str) -> None:
        self._metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"

    def read_text(self, filename: str) -> str | None:
        return self._metadata if filename == "METADATA" else None

    def locate_file(self, path: object) -> NoReturn:
        raise FileNotFoundError(f"{path}: a stand-in has no files")
