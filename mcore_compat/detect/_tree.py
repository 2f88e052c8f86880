"""One parsed source file: its top-level names and how to reach what they stand for."""

from __future__ import annotations

import ast
import platform
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from mcore_compat.errors import EnvironmentMismatch

Function = ast.FunctionDef | ast.AsyncFunctionDef
BLOCKS = ("body", "orelse", "handlers", "finalbody")


@dataclass(frozen=True)
class Import:
    """``from module import name``, as an absolute module; ``name`` is ``None`` for ``import module``."""

    module: str
    name: str | None


Binding = Function | ast.ClassDef | ast.expr | Import


@dataclass
class Source:
    """A module of the tree, parsed when first asked for."""

    module: str
    path: Path
    _names: dict[str, Binding] = field(default_factory=dict, init=False, repr=False)

    @cached_property
    def text(self) -> str:
        """The file's text."""
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def body(self) -> list[ast.stmt]:
        """The module's statements."""
        try:
            # Old releases hold escapes that a newer Python warns about; that is no concern of who reads them.
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return ast.parse(self.text, filename=str(self.path)).body
        except SyntaxError as error:
            raise EnvironmentMismatch(
                f"Python {platform.python_version()} cannot read {self.path}: {error}",
                hint="use the Python that this Megatron was written for, or restore the file",
            ) from error

    @cached_property
    def names(self) -> dict[str, Binding]:
        """Name to what binds it at the top level, also under ``if``, ``try``, ``with``; outermost wins."""
        nested: dict[str, Binding] = {}
        for name, binding, depth in self._bindings(self.body, 0):
            if depth == 0:
                self._names[name] = binding
            else:
                nested.setdefault(name, binding)
        return nested | self._names

    @cached_property
    def stars(self) -> list[str]:
        """Modules this one does ``from module import *`` with."""
        return [
            self.absolute(node)
            for node in self.body
            if isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names)
        ]

    def absolute(self, node: ast.ImportFrom) -> str:
        """Absolute name of the module that ``node`` imports from."""
        if not node.level:
            return node.module or ""
        parts = self.module.split(".")
        keep = len(parts) - node.level + (self.path.name == "__init__.py")
        return ".".join(parts[:keep] + ([node.module] if node.module else []))

    def _bindings(self, body: list[ast.stmt], depth: int) -> Iterator[tuple[str, Binding, int]]:
        for node in body:
            for name, binding in self._bound_by(node):
                yield name, binding, depth
            if isinstance(node, ast.If | ast.Try | ast.With):
                yield from self._bindings(list(_inner(node)), depth + 1)

    def _bound_by(self, node: ast.stmt) -> Iterator[tuple[str, Binding]]:
        if isinstance(node, Function | ast.ClassDef):
            yield node.name, node
        elif isinstance(node, ast.Assign):
            yield from ((name.id, node.value) for name in node.targets if isinstance(name, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
            yield node.target.id, node.value
        elif isinstance(node, ast.ImportFrom):
            module = self.absolute(node)
            yield from ((alias.asname or alias.name, Import(module, alias.name)) for alias in node.names)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name if alias.asname else alias.name.partition(".")[0]
                yield alias.asname or top, Import(top, None)


def _inner(node: ast.AST) -> Iterator[ast.stmt]:
    for block in BLOCKS:
        for child in getattr(node, block, ()):
            if isinstance(child, ast.ExceptHandler):
                yield from child.body
            else:
                yield child


def text_of(text: str, node: Function | ast.ClassDef) -> str:
    """Source lines of a definition, decorators included."""
    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    return "\n".join(text.splitlines()[first - 1 : node.end_lineno])


def parameter_names(node: Function, *, bound: bool) -> tuple[str, ...]:
    """Parameter names in order; variadic ones keep their stars. ``bound`` drops ``self`` or ``cls``."""
    args = node.args
    names = [arg.arg for arg in (*args.posonlyargs, *args.args)]
    names = names[1:] if bound and not _is_static(node) else names
    names += [f"*{args.vararg.arg}"] if args.vararg else []
    names += [arg.arg for arg in args.kwonlyargs]
    return (*names, *([f"**{args.kwarg.arg}"] if args.kwarg else []))


def _is_static(node: Function) -> bool:
    return any(isinstance(mark, ast.Name) and mark.id == "staticmethod" for mark in node.decorator_list)
