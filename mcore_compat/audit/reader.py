"""Reads a source file without importing it and lists what it does with Megatron."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from pathlib import Path

from mcore_compat.audit.uses import Seen

_ALIASES = {"megatron.core.mpu": "megatron.core.parallel_state"}
# What a call of the key returns is called by this name.
_RESULTS = {"get_forward_backward_func": "megatron.core.pipeline_parallel.forward_backward_func"}
_ABSENCE = {"ImportError", "ModuleNotFoundError", "AttributeError"}
# Loops over the parameters of an inference engine's own model.
_ENGINES = ("model_runner", "vllm", "inference")
_GUARDS = ("version", "hasattr", "signature", "find_spec", "type_checking")


def read(path: Path) -> list[Seen]:
    """Everything in the file that a release may break, in the order of lines.

    Code under a guard is left out: in a ``try`` that expects an import error, and under an ``if`` that asks for a
    version or whether something is there.

    Raises:
        SyntaxError: The file is no Python that this interpreter reads, or no text in the encoding that it says.
        ValueError: The file has null bytes.
        OSError: The file cannot be read.
    """
    source = path.read_bytes()
    if b"megatron" not in source.lower():
        return []
    tree = parsed(source, str(path))
    names = local_names(tree)
    reader = _Reader(names, _only_evaluated(tree, names))
    reader.visit(tree)
    return sorted(reader.seen, key=lambda seen: (seen.line, seen.column))


def parsed(source: str | bytes, filename: str = "<unknown>") -> ast.Module:
    """The syntax tree.

    Raises:
        SyntaxError: This interpreter reads no such Python.
        ValueError: There are null bytes.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # old escapes in strings are no concern of the audit
        return ast.parse(source, filename)


def canonical(dotted: str) -> str:
    """The dotted name with Megatron's own aliases resolved."""
    for alias, module in _ALIASES.items():
        if dotted == alias or dotted.startswith(f"{alias}."):
            return module + dotted.removeprefix(alias)
    return dotted


def local_names(tree: ast.Module) -> dict[str, str]:
    """Local names and attributes to the dotted Megatron name that they stand for."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update({a.asname: a.name for a in node.names if a.asname and is_megatron(a.name)})
            if any(not a.asname and is_megatron(a.name) for a in node.names):
                found["megatron"] = "megatron"
        elif isinstance(node, ast.ImportFrom) and is_megatron(node.module) and not node.level:
            found.update({a.asname or a.name: canonical(f"{node.module}.{a.name}") for a in node.names})
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            function = dotted_name(node.value.func, found).rpartition(".")[2]
            if function in _RESULTS:
                found.update({ast.unparse(target): _RESULTS[function] for target in node.targets})
    return found


def is_megatron(module: str | None) -> bool:
    """Whether that module is one of Megatron's."""
    return module is not None and module.partition(".")[0] == "megatron"


def dotted_name(node: ast.expr, names: dict[str, str]) -> str:
    """Megatron's dotted name of an expression; empty where it is none."""
    if isinstance(node, ast.Name):
        return names.get(node.id, "")
    if isinstance(node, ast.Attribute):
        known = names.get(ast.unparse(node), "")
        owner = known or dotted_name(node.value, names)
        return known or (canonical(f"{owner}.{node.attr}") if owner else "")
    if isinstance(node, ast.Call):
        return _RESULTS.get(dotted_name(node.func, names).rpartition(".")[2], "")
    return ""


def seen_in(node: ast.Call, names: dict[str, str]) -> Seen:
    """What a call does with Megatron."""
    dotted = dotted_name(node.func, names)
    receiver = ast.unparse(node.func.value) if isinstance(node.func, ast.Attribute) and not dotted else ""
    name = dotted or (node.func.attr if isinstance(node.func, ast.Attribute) else "")
    starred = any(isinstance(argument, ast.Starred) for argument in node.args)
    keywords = frozenset(keyword.arg for keyword in node.keywords if keyword.arg)
    positional = None if starred else len(node.args)
    return Seen(node.lineno, node.col_offset + 1, "call", name, receiver, positional, keywords)


def is_guard(node: ast.AST) -> bool:
    """Whether the statement looks what Megatron is there: under it, the program knows what it does."""
    if isinstance(node, ast.If):
        return any(word in ast.unparse(node.test).lower() for word in _GUARDS)
    return isinstance(node, ast.Try) and any(_expects_absence(handler) for handler in node.handlers)


def _only_evaluated(tree: ast.Module, names: dict[str, str]) -> set[str]:
    """Models that the file gives to schedules with ``forward_only=True`` and in no other way: nobody trains them."""
    modes: dict[str, set[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and dotted_name(node.func, names) in _RESULTS.values():
            given = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
            modes.setdefault(given.get("model", ""), set()).add(given.get("forward_only", ""))
    return {model for model, found in modes.items() if model and found == {"True"}}


class _Reader(ast.NodeVisitor):
    def __init__(self, names: dict[str, str], evaluated: set[str]) -> None:
        self.names = names
        self.evaluated = evaluated  # models that nobody trains; loop variables over them, where the reader is
        self.seen: list[Seen] = []
        self.parameters: set[str] = set()  # loop variables over parameters, where the reader is

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            if is_megatron(alias.name):
                self._add(node, "name", alias.name)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        for alias in node.names:
            if is_megatron(node.module) and not node.level and alias.name != "*":
                self._add(alias, "name", canonical(f"{node.module}.{alias.name}"))

    def visit_Attribute(self, node: ast.Attribute) -> None:
        dotted = dotted_name(node, self.names)
        if dotted:
            self._add(node, "name", dotted)
            return
        self._add(node, "attribute", node.attr, receiver=ast.unparse(node.value))
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        self.seen.append(seen_in(node, self.names))
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        for target in node.targets:
            owner = ast.unparse(target.value) if isinstance(target, ast.Attribute) and target.attr == "data" else ""
            if owner in self.parameters:
                self._add(node, "rebinding", "data", receiver=owner)
        self.generic_visit(node)

    def visit_For(self, node: ast.For) -> None:
        before = self.parameters, self.evaluated
        over = ast.unparse(node.iter)
        names = {name.id for name in ast.walk(node.target) if isinstance(name, ast.Name)}
        if over in self.evaluated:
            self.evaluated = self.evaluated | names
        elif "parameters(" in over and not self._is_untrained(over):
            self.parameters = self.parameters | names
        self.generic_visit(node)
        self.parameters, self.evaluated = before

    def _is_untrained(self, over: str) -> bool:
        engine = any(engine in over for engine in _ENGINES)
        return engine or any(over.startswith((f"{model}.", f"{model}[")) for model in self.evaluated)

    def visit_Try(self, node: ast.Try) -> None:
        if not is_guard(node):
            self.generic_visit(node)
            return
        for statement in (*node.orelse, *node.finalbody):
            self.visit(statement)

    def visit_If(self, node: ast.If) -> None:
        if not is_guard(node):
            self.generic_visit(node)

    def _add(self, node: ast.stmt | ast.expr | ast.alias, kind: str, name: str, receiver: str = "") -> None:
        self.seen.append(Seen(node.lineno, node.col_offset + 1, kind, name, receiver))


def _expects_absence(handler: ast.ExceptHandler) -> bool:
    caught: Iterator[ast.AST] = ast.walk(handler.type) if handler.type else iter(())
    return handler.type is None or any(isinstance(node, ast.Name) and node.id in _ABSENCE for node in caught)
