"""Answers about Megatron's source, read with ast, each file at most once and only when asked for."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path

from mcore_compat.detect._find import Megatron, find
from mcore_compat.detect._tree import Binding, Function, Import, Source, parameter_names, text_of


class Facts:
    """Static facts of the Megatron under ``root`` (the directory that holds ``megatron/``).

    Places are written ``module:name`` or ``module:Class.name``. Names imported from elsewhere in the tree and
    plain aliases are followed to their definition, so a symbol may be named where it lives or where it is
    imported from.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._sources: dict[str, Source | None] = {}

    @cached_property
    def megatron(self) -> Megatron:
        """What this tree claims to be."""
        return find(self.root)

    def has_module(self, module: str) -> bool:
        """Whether the tree has this module or package (namespace packages included)."""
        return self._source(module) is not None or self._path(module).is_dir()

    def defines(self, place: str) -> bool:
        """Whether the module binds that name at its top level, or the class has or inherits that method."""
        module, _, name = place.partition(":")
        owner, _, member = name.rpartition(".")
        if owner:
            return self._member(f"{module}:{owner}", member) is not None
        return self._binding(module, name) is not None

    def parameters(self, place: str) -> tuple[str, ...] | None:
        """Parameter names of a function, a method or a class's constructor, without ``self``.

        Variadic parameters keep their stars (``**kwargs``).

        Returns:
            Names in order; ``None`` where there is no such function.
        """
        found = self._definition(place)
        if isinstance(found, ast.ClassDef):
            return self.parameters(f"{place}.__init__")
        return parameter_names(found, bound="." in place.partition(":")[2]) if found else None

    def fields(self, place: str) -> Mapping[str, str | None]:
        """Annotated fields of a class and of its bases in the tree: name to source of the default.

        The default is ``None`` where there is none; the mapping is empty where there is no such class.
        """
        found: dict[str, str | None] = {}
        for _, node in reversed(list(self._lineage(place))):
            for statement in node.body:
                if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                    found[statement.target.id] = ast.unparse(statement.value) if statement.value else None
        return found

    def source(self, place: str) -> str | None:
        """Text of one definition, decorators included; ``None`` where there is none."""
        located = self._locate(place)
        return text_of(located[0].text, located[1]) if located else None

    def _definition(self, place: str) -> Function | ast.ClassDef | None:
        located = self._locate(place)
        return located[1] if located else None

    def _locate(self, place: str) -> tuple[Source, Function | ast.ClassDef] | None:
        module, _, name = place.partition(":")
        owner, _, member = name.rpartition(".")
        if owner:
            return self._member(f"{module}:{owner}", member)
        source, binding = self._resolve(module, name)
        return (source, binding) if source and isinstance(binding, Function | ast.ClassDef) else None

    def _member(self, owner: str, member: str) -> tuple[Source, Function | ast.ClassDef] | None:
        for source, node in self._lineage(owner):
            for statement in node.body:
                if isinstance(statement, Function | ast.ClassDef) and statement.name == member:
                    return source, statement
        return None

    def _lineage(self, place: str) -> Iterator[tuple[Source, ast.ClassDef]]:
        """The class and its bases inside the tree, nearest first."""
        source, node = self._locate(place) or (None, None)
        if source is None or not isinstance(node, ast.ClassDef):
            return
        yield source, node
        for base in node.bases:
            name = ast.unparse(base)
            if isinstance(base, ast.Name) and name != node.name:
                yield from self._lineage(f"{source.module}:{name}")

    def _resolve(self, module: str, name: str) -> tuple[Source | None, Binding | None]:
        """Follow imports and aliases from ``module:name`` to what it stands for."""
        seen: set[tuple[str, str]] = set()
        while (module, name) not in seen:
            seen.add((module, name))
            source = self._source(module)
            if source is None:
                return None, None
            binding = self._binding(module, name)
            if isinstance(binding, Import) and binding.name:
                module, name = binding.module, binding.name
            elif isinstance(binding, ast.Name):
                name = binding.id
            else:
                return source, binding
        return None, None

    def _binding(self, module: str, name: str, seen: frozenset[str] = frozenset()) -> Binding | None:
        """What binds ``name`` in that module, star imports included (``seen``: they may be circular)."""
        source = self._source(module)
        if source is None or module in seen:
            return None
        if name in source.names:
            return source.names[name]
        starred = (star for star in source.stars if self._binding(star, name, seen | {module}) is not None)
        return next((Import(star, name) for star in starred), None)

    def _source(self, module: str) -> Source | None:
        if module not in self._sources:
            base = self._path(module)
            files = (base / "__init__.py", base.with_name(f"{base.name}.py"))
            path = next((path for path in files if path.is_file()), None)
            self._sources[module] = Source(module, path) if path else None
        return self._sources[module]

    def _path(self, module: str) -> Path:
        return self.root.joinpath(*module.split("."))
