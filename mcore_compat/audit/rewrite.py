"""Rewrites what has an exact stable counterpart; everything else, comments and layout included, stays as it is."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import libcst as cst
from libcst.codemod import CodemodContext
from libcst.codemod.visitors import AddImportsVisitor

from mcore_compat.audit.layout import Bracket, Item, of_call, same_comments
from mcore_compat.audit.reader import dotted_name, is_guard, local_names, parsed, seen_in
from mcore_compat.audit.search import asked_about
from mcore_compat.audit.shapes import FLAGS, FLAT_PLACES, GROUPS, REQUIRED_FLAGS, SIZES
from mcore_compat.audit.table import rows, rows_about
from mcore_compat.audit.unimport import Unimport
from mcore_compat.audit.uses import Name

_PACKAGE = "mcore_compat"
_CALLS = "mcore_compat.legacy.calls"


def fixed(source: str, targets: Sequence[str] = (), kept: Collection[str] = ()) -> str:
    """The source rewritten, with every comment; unchanged where Python cannot parse it.

    Args:
        source: Of one file.
        targets: What works on all of these releases stays; none: the newest one.
        kept: Names that others import from it; a star stands for all.
    """
    try:
        names = local_names(parsed(source))
        module = cst.parse_module(source)
    except (SyntaxError, ValueError, cst.ParserSyntaxError):
        return source
    context = CodemodContext()
    rewriter = _Rewriter(module, names, context, asked_about(targets))
    rewritten = module.visit(rewriter)
    if rewritten.code == source:
        return source
    if "*" not in kept:
        rewritten = rewritten.visit(Unimport(rewriter.called - _used(rewritten) - set(kept)))
    return AddImportsVisitor(context).transform_module(rewritten).code


class _Rewriter(cst.CSTTransformer):
    def __init__(
        self, module: cst.Module, names: dict[str, str], context: CodemodContext, targets: Sequence[str]
    ) -> None:
        super().__init__()
        self._targets = targets
        self._module = module
        self._names = names
        self._context = context
        self._functions = {
            "initialize_model_parallel": self._initialize,
            "DistributedDataParallel": self._wrap,
            "get_forward_backward_func": self._schedule,
        }
        # Last parts of what may be called, to pass over the other calls quickly.
        self._last = {name.rpartition(".")[2] for name in names} | {*self._functions, "zero_grad_buffer", "step"}
        self.called: set[str] = set()  # names by which what was replaced had been called

    def visit_Try(self, node: cst.Try) -> bool:
        return not self._is_guard(node)

    def visit_If(self, node: cst.If) -> bool:
        return not self._is_guard(node)

    def leave_ImportFrom(self, original_node: cst.ImportFrom, updated_node: cst.ImportFrom) -> cst.ImportFrom:
        if original_node.module is None or original_node.relative or isinstance(original_node.names, cst.ImportStar):
            return updated_node
        module = self._text(original_node.module)
        homes = {_served(module, self._text(alias.name), self._targets) for alias in original_node.names}
        home = homes.pop() if len(homes) == 1 else ""
        return updated_node.with_changes(module=_expression(home)) if home else updated_node

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        rewrite = self._rewrite_of(original_node)
        new = rewrite(updated_node) if rewrite and not self._stays(original_node) else None
        if new is None:
            return updated_node
        new = new.with_changes(lpar=updated_node.lpar, rpar=updated_node.rpar)
        if not same_comments(new, updated_node):  # one stands where it has no place any more
            return updated_node
        for package in (_CALLS, _PACKAGE):
            if f"{package}." in self._text(new):
                AddImportsVisitor.add_needed_import(self._context, package)
                break
        if isinstance(original_node.func, cst.Name):
            self.called.add(original_node.func.value)
        return new

    def _rewrite_of(self, call: cst.Call) -> Callable[[cst.Call], cst.BaseExpression | None] | None:
        last = call.func.attr if isinstance(call.func, cst.Attribute) else call.func
        if not isinstance(last, cst.Name) or last.value not in self._last:
            return None
        dotted = dotted_name(self._parsed(call.func), self._names)
        if dotted:
            return self._functions.get(dotted.rpartition(".")[2])
        if last.value == "zero_grad_buffer" and last is not call.func and call.args:
            return self._clear
        if last.value == "step" and len(call.args) == 2 and "optim" in self._text(call.func).lower():
            return self._step
        return None

    def _stays(self, call: cst.Call) -> bool:
        """Whether all targets take it as it is, or what is called stands in brackets, which a name cannot replace."""
        node = self._parsed(call)
        assert isinstance(node, ast.Call)
        seen = seen_in(node, self._names)
        about = [row for row in rows_about("call") if row.use.of(seen)]
        taken = bool(about) and not any(row.breaks_on(self._targets) for row in about)
        return taken or self._text(call.func).startswith("(")

    def _is_guard(self, node: cst.Try | cst.If) -> bool:
        (statement,) = parsed(self._text(node)).body
        return is_guard(statement)

    def _initialize(self, call: cst.Call) -> cst.BaseExpression | None:
        bracket = _named(call, tuple(SIZES)[:3])
        if bracket is None or any(_name(item) not in SIZES and not _is_off(item) for item in bracket.items):
            return None
        kept = bracket.only(lambda item: not _is_off(item))
        return _call(f"{_PACKAGE}.init_parallel", replace(kept, items=_renamed(kept.items, SIZES)))

    def _wrap(self, call: cst.Call) -> cst.BaseExpression | None:
        bracket = _named(call, FLAT_PLACES)
        values = {_name(item): item for item in bracket.items} if bracket else {}
        if bracket is None or values.keys() - {*FLAGS, *GROUPS, "config", "module"}:
            return None
        if not {"config", "module", REQUIRED_FLAGS[0]} <= values.keys():
            return None
        if not all("parallel_group(" in self._text(values[name].node.value) for name in GROUPS if name in values):
            return None  # a group of the program's own
        bracket = bracket.only(lambda item: _name(item) not in GROUPS)
        by_name = {_name(item): item for item in bracket.items}
        module, config = (by_name.pop(name) for name in ("module", "config"))
        inner = bracket.inner(_renamed(by_name.values(), FLAGS))
        chunks = cst.List([cst.Element(module.node.value)])
        items = (
            replace(module, node=cst.Arg(chunks)),
            replace(config, node=cst.Arg(config.node.value)),
            Item(cst.Arg(_call(f"{_PACKAGE}.DataParallelSettings", inner))),
        )
        wrapped = _call(f"{_PACKAGE}.wrap_data_parallel", replace(bracket, items=items))
        return cst.Subscript(wrapped, [cst.SubscriptElement(cst.Index(cst.Integer("0")))])

    def _schedule(self, call: cst.Call) -> cst.BaseExpression | None:
        return None if call.args else _call(f"{_CALLS}.get_forward_backward_func", of_call(call))

    def _clear(self, call: cst.Call) -> cst.BaseExpression | None:
        assert isinstance(call.func, cst.Attribute)
        kept = of_call(call).only(lambda item: False)
        return _call(f"{_CALLS}.zero_grad_buffer", replace(kept, items=(Item(cst.Arg(call.func.value)),)))

    def _step(self, call: cst.Call) -> cst.BaseExpression | None:
        return _call(call.func, of_call(call).only(lambda item: False))

    def _parsed(self, node: cst.BaseExpression) -> ast.expr:
        (statement,) = parsed(f"({self._text(node)})").body
        assert isinstance(statement, ast.Expr)
        return statement.value

    def _text(self, node: cst.CSTNode) -> str:
        return self._module.code_for_node(node)


def _call(function: str | cst.BaseExpression, bracket: Bracket[cst.Arg]) -> cst.Call:
    before, arguments = bracket.written()
    named = _expression(function) if isinstance(function, str) else function
    return cst.Call(named, arguments, whitespace_before_args=before)


def _named(call: cst.Call, places: Sequence[str]) -> Bracket[cst.Arg] | None:
    """The arguments, all by keyword; ``None`` where stars or too many positions hide their names."""
    bracket = of_call(call)
    positional = sum(argument.keyword is None for argument in call.args)
    if any(argument.star for argument in call.args) or positional > len(places):
        return None
    names = [*places[:positional], *(argument.keyword.value for argument in call.args if argument.keyword)]
    return replace(bracket, items=tuple(map(_under, bracket.items, names)))


def _renamed(items: Iterable[Item[cst.Arg]], names: Mapping[str, str]) -> tuple[Item[cst.Arg], ...]:
    return tuple(_under(item, names[_name(item)]) for item in items)


def _under(item: Item[cst.Arg], name: str) -> Item[cst.Arg]:
    tight = cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))
    return replace(item, node=cst.Arg(item.node.value, cst.Name(name), equal=tight))


def _name(item: Item[cst.Arg]) -> str:
    return item.node.keyword.value if item.node.keyword else ""


def _is_off(item: Item[cst.Arg]) -> bool:
    return isinstance(item.node.value, cst.Name) and item.node.value.value in ("None", "False")


def _used(module: cst.Module) -> set[str]:
    """Names that are read anywhere, and texts, which may stand in ``__all__`` or be annotations."""
    nodes = list(ast.walk(parsed(module.code)))
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    return names | {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def _served(module: str, name: str, targets: Sequence[str]) -> str:
    """Where :mod:`mcore_compat.legacy` has a name that breaks on a target; empty where it has not."""
    about = (row for row in rows() if isinstance(row.use, Name) and _covers(row.use, module, name))
    row = next((row for row in about if row.breaks_on(targets)), None)
    served = row.served if row else ""
    return f"mcore_compat.legacy.{served}" if served and ":" not in served and name in _offered(served) else ""


def _covers(use: Name, module: str, name: str) -> bool:
    if use.module.startswith("megatron.core"):
        return False
    inside = module == use.module or (not use.names and module.startswith(f"{use.module}."))
    return inside and (not use.names or name in use.names)


def _offered(served: str) -> frozenset[str]:
    """``__all__`` of a module of ``legacy``, read from its source: importing it would load torch."""
    source = Path(__file__).parents[1].joinpath("legacy", f"{served}.py").read_text(encoding="utf-8")
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return frozenset(ast.literal_eval(node.value))
    return frozenset()


def _expression(dotted: str) -> cst.Attribute | cst.Name:
    expression = cst.parse_expression(dotted)
    assert isinstance(expression, cst.Attribute | cst.Name)
    return expression
