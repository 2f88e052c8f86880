"""Which modules a Megatron tree imports without a guard, read from its text.

An import in column 0 always runs; one inside ``try``, ``if`` or a function may not. Following only the former
from the modules that the seams use tells which absent packages stop this release, and on whose behalf.
Nothing is imported. A release that probes for a package (``try: import apex``) is left to find it absent.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from importlib.machinery import PathFinder
from pathlib import Path

ENTRIES = (
    "megatron.core",
    "megatron.core.distributed",
    "megatron.core.distributed.finalize_model_grads",
    "megatron.core.models.gpt",
    "megatron.core.models.gpt.gpt_layer_specs",
    "megatron.core.optimizer",
    "megatron.core.parallel_state",
    "megatron.core.pipeline_parallel",
    "megatron.core.tensor_parallel",
    "megatron.core.tensor_parallel.random",
    "megatron.core.transformer.module",
    "megatron.core.transformer.transformer_block",
    "megatron.core.transformer.transformer_config",
    "megatron.optimizer",
    "megatron.optimizer.optimizer",
    "megatron.optimizer_param_scheduler",
)
# What programs import that know nothing of the seams.
PROGRAMS = (
    "megatron.core.models.bert",
    "megatron.core.models.multimodal",
    "megatron.core.models.retro",
    "megatron.core.models.t5",
    "megatron.core.models.vision",
    "megatron.training",
    "megatron.training.arguments",
    "megatron.training.initialize",
)
_COMMENT = re.compile(r"#[^\n]*")
_IMPORT = re.compile(
    r"^(?:from[ \t]+(?P<base>[.\w]+)[ \t]+import[ \t]+(?P<names>\([^)]*\)|(?:\\\n|[^\n])*)"
    r"|import[ \t]+(?P<plain>[^\n]+))",
    re.MULTILINE,
)


@dataclass(frozen=True)
class Source:
    """A Megatron source tree.

    Attributes:
        root: Folder that holds ``megatron``.
        entries: Modules that may be imported.
        others: Further folders that hold parts of ``megatron``, other than ``megatron.core``.
    """

    root: Path
    entries: tuple[str, ...] = ENTRIES
    others: tuple[Path, ...] = ()
    _texts: dict[str, str | None] = field(default_factory=dict, compare=False, repr=False)

    def text(self, module: str) -> str:
        """Source of a module of this tree; empty where there is none."""
        return self._read(module) or ""

    def _read(self, module: str) -> str | None:
        if module not in self._texts:
            path = self._path(module)
            self._texts[module] = path.read_text(encoding="utf-8") if path else None
        return self._texts[module]

    def _path(self, module: str) -> Path | None:
        roots = [self.root, *([] if f"{module}.".startswith("megatron.core.") else self.others)]
        bases = (root.joinpath(*module.split(".")) for root in roots)
        candidates = (path for base in bases for path in (base / "__init__.py", base.with_name(base.name + ".py")))
        return next((path for path in candidates if path.is_file()), None)

    @cached_property
    def importers(self) -> dict[str, frozenset[str]]:
        """Top-level packages outside the tree, and which reachable modules import each without a guard."""
        found: dict[str, set[str]] = {}
        for module in self.reachable:
            for name in _targets(module, self.text(module), self._is_package(module)):
                top = name.partition(".")[0]
                if top not in ("megatron", "__future__") and top not in sys.stdlib_module_names:
                    found.setdefault(top, set()).add(module)
        return {top: frozenset(modules) for top, modules in found.items()}

    @cached_property
    def needed(self) -> frozenset[str]:
        """Packages that what the seams use imports without a guard."""
        modules = self._reached_from(ENTRIES)
        return frozenset(top for top, importers in self.importers.items() if importers & modules)

    @cached_property
    def reachable(self) -> frozenset[str]:
        """Modules of the tree that importing the entries certainly runs."""
        return self._reached_from(self.entries)

    def _reached_from(self, entries: Iterable[str]) -> frozenset[str]:
        seen: set[str] = set()
        todo = list(entries)
        while todo:
            module = todo.pop()
            if module in seen or self._read(module) is None:
                continue
            seen.add(module)
            todo += _parents(module)
            for name in _targets(module, self.text(module), self._is_package(module)):
                if name.startswith("megatron."):
                    todo += [name, *_parents(name)]
        return frozenset(seen)

    def _is_package(self, module: str) -> bool:
        path = self._path(module)
        return path is not None and path.name == "__init__.py"


def portions() -> Iterator[Path]:
    """Folders on ``sys.path`` that hold a part of ``megatron``."""
    spec = PathFinder.find_spec("megatron")
    yield from (Path(place).parent for place in (spec and spec.submodule_search_locations) or ())


def _parents(module: str) -> Iterable[str]:
    parts = module.split(".")
    return [".".join(parts[:end]) for end in range(1, len(parts))]


def _targets(module: str, text: str, is_package: bool) -> Iterator[str]:
    """Every name an unguarded import of this text may load; ``from a import b`` gives ``a`` and ``a.b``."""
    for match in _IMPORT.finditer(_COMMENT.sub("", text)):
        if match["plain"]:
            yield from (name.split()[0] for name in match["plain"].split(",") if name.strip())
            continue
        base = _absolute(match["base"], module, is_package)
        yield base
        names = match["names"].replace("\\", " ").strip("() \t\n").split(",")
        yield from (f"{base}.{name.split()[0]}" for name in names if name.strip())


def _absolute(base: str, module: str, is_package: bool) -> str:
    name = base.lstrip(".")
    level = len(base) - len(name)
    if not level:
        return base
    parts = module.split(".")
    package = parts[: len(parts) - level + is_package]
    return ".".join([*package, name] if name else package)
