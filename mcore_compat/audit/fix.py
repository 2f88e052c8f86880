"""Rewrites what has an exact stable counterpart; everything else, comments and layout included, stays as it is."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Callable, Sequence
from pathlib import Path

import libcst as cst
from libcst import matchers
from libcst.codemod import CodemodContext
from libcst.codemod.visitors import AddImportsVisitor, RemoveImportsVisitor

from mcore_compat.audit.reader import dotted_name, local_names
from mcore_compat.audit.search import python_files
from mcore_compat.audit.table import Row, rows
from mcore_compat.audit.uses import Name

_PACKAGE = "mcore_compat"
_CALLS = "mcore_compat.legacy.calls"
_SIZES = {
    "tensor_model_parallel_size": "tp",
    "pipeline_model_parallel_size": "pp",
    "virtual_pipeline_model_parallel_size": "vpp",
    "context_parallel_size": "cp",
    "expert_model_parallel_size": "ep",
}
_FLAGS = {
    "use_distributed_optimizer": "use_distributed_optimizer",
    "overlap_grad_reduce": "overlap_grad_reduce",
    "accumulate_allreduce_grads_in_fp32": "grad_reduce_in_fp32",
    "disable_bucketing": "disable_bucketing",
    "bucket_size": "bucket_size",
    "check_for_nan_in_grad": "check_for_nan_in_grad",
}
_GROUPS = ("data_parallel_group", "expert_data_parallel_group")
_FLAT_PLACES = (
    "config",
    "module",
    "data_parallel_group",
    "accumulate_allreduce_grads_in_fp32",
    "overlap_grad_reduce",
    "use_distributed_optimizer",
)


def fix_files(path: Path) -> str:
    """Rewrite every file under ``path`` in place.

    Returns:
        A unified diff of all changes.
    """
    diffs: list[str] = []
    for file in python_files(path):
        before = file.read_text(encoding="utf-8")
        after = fixed(before) if "megatron" in before else before
        if after != before:
            file.write_text(after, encoding="utf-8")
            lines = (before.splitlines(keepends=True), after.splitlines(keepends=True))
            diffs += difflib.unified_diff(*lines, str(file), str(file))
    return "".join(diffs)


def fixed(source: str) -> str:
    """The source rewritten; unchanged where Python cannot parse it."""
    try:
        names = local_names(ast.parse(source))
        module = cst.parse_module(source)
    except (SyntaxError, cst.ParserSyntaxError):
        return source
    context = CodemodContext()
    rewritten = module.visit(_Rewriter(module, names, context))
    rewritten = AddImportsVisitor(context).transform_module(rewritten)
    return RemoveImportsVisitor(context).transform_module(rewritten).code


class _Rewriter(cst.CSTTransformer):
    def __init__(self, module: cst.Module, names: dict[str, str], context: CodemodContext) -> None:
        super().__init__()
        self._module = module
        self._names = names
        self._context = context

    def leave_ImportFrom(self, original_node: cst.ImportFrom, updated_node: cst.ImportFrom) -> cst.ImportFrom:
        if original_node.module is None or original_node.relative or isinstance(original_node.names, cst.ImportStar):
            return updated_node
        homes = {_served(self._text(original_node.module), self._text(alias.name)) for alias in original_node.names}
        home = homes.pop() if len(homes) == 1 else ""
        return updated_node.with_changes(module=_expression(home)) if home else updated_node

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        rewrite = self._rewrite_of(original_node)
        new = rewrite(updated_node) if rewrite else None
        if new is None:
            return updated_node
        AddImportsVisitor.add_needed_import(self._context, _PACKAGE)
        self._drop_import(original_node.func)
        return new

    def _rewrite_of(self, call: cst.Call) -> Callable[[cst.Call], cst.BaseExpression | None] | None:
        dotted = dotted_name(ast.parse(self._text(call.func), mode="eval").body, self._names)
        if dotted:
            return {
                "initialize_model_parallel": self._initialize,
                "DistributedDataParallel": self._wrap,
                "get_forward_backward_func": self._schedule,
            }.get(dotted.rpartition(".")[2])
        if matchers.matches(call.func, matchers.Attribute(attr=matchers.Name("zero_grad_buffer"))) and call.args:
            return self._clear
        if matchers.matches(call.func, matchers.Attribute(attr=matchers.Name("step"))) and len(call.args) == 2:
            return self._step if "optim" in self._text(call.func).lower() else None
        return None

    def _initialize(self, call: cst.Call) -> cst.BaseExpression | None:
        arguments = _by_name(call, tuple(_SIZES)[:3])
        if arguments is None or any(not _is_off(value) for name, value in arguments.items() if name not in _SIZES):
            return None
        kept = {_SIZES[name]: value for name, value in arguments.items() if name in _SIZES and not _is_off(value)}
        return cst.Call(_expression(f"{_PACKAGE}.init_parallel"), _keywords(kept))

    def _wrap(self, call: cst.Call) -> cst.BaseExpression | None:
        arguments = _by_name(call, _FLAT_PLACES)
        if arguments is None or arguments.keys() - {*_FLAGS, *_GROUPS, "config", "module"}:
            return None
        if not {"config", "module", "accumulate_allreduce_grads_in_fp32"} <= arguments.keys():
            return None
        if not all("parallel_group(" in self._text(arguments[name]) for name in _GROUPS if name in arguments):
            return None  # a group of the program's own
        flags = {_FLAGS[name]: value for name, value in arguments.items() if name in _FLAGS}
        settings = cst.Call(_expression(f"{_PACKAGE}.DataParallelSettings"), _keywords(flags))
        chunks = cst.List([cst.Element(arguments["module"])])
        values = (chunks, arguments["config"], settings)
        wrapped = cst.Call(_expression(f"{_PACKAGE}.wrap_data_parallel"), [cst.Arg(value) for value in values])
        return cst.Subscript(wrapped, [cst.SubscriptElement(cst.Index(cst.Integer("0")))])

    def _schedule(self, call: cst.Call) -> cst.BaseExpression | None:
        AddImportsVisitor.add_needed_import(self._context, _CALLS)
        return None if call.args else cst.Call(_expression(f"{_CALLS}.get_forward_backward_func"))

    def _clear(self, call: cst.Call) -> cst.BaseExpression | None:
        AddImportsVisitor.add_needed_import(self._context, _CALLS)
        assert isinstance(call.func, cst.Attribute)
        return cst.Call(_expression(f"{_CALLS}.zero_grad_buffer"), [cst.Arg(call.func.value)])

    def _step(self, call: cst.Call) -> cst.BaseExpression | None:
        return call.with_changes(args=[])

    def _drop_import(self, function: cst.BaseExpression) -> None:
        """Of a name that is no longer called; it stays where it is still used."""
        if isinstance(function, cst.Name):
            module, _, name = self._names.get(function.value, "").rpartition(".")
            alias = None if name == function.value else function.value
            RemoveImportsVisitor.remove_unused_import(self._context, module, name, alias)

    def _text(self, node: cst.CSTNode) -> str:
        return self._module.code_for_node(node)


def _served(module: str, name: str) -> str:
    """Where :mod:`mcore_compat.legacy` has that name; empty where it has not."""
    fits: Callable[[Row], bool] = lambda row: isinstance(row.use, Name) and _covers(row.use, module, name)  # noqa: E731
    row = next((row for row in rows() if fits(row)), None)
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


def _by_name(call: cst.Call, places: Sequence[str]) -> dict[str, cst.BaseExpression] | None:
    """Arguments by name; ``None`` where stars or too many positions hide them."""
    positional = [argument for argument in call.args if argument.keyword is None]
    if any(argument.star for argument in call.args) or len(positional) > len(places):
        return None
    named = {argument.keyword.value: argument.value for argument in call.args if argument.keyword is not None}
    return {place: argument.value for place, argument in zip(places, positional, strict=False)} | named


def _keywords(values: dict[str, cst.BaseExpression]) -> list[cst.Arg]:
    tight = cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))
    return [cst.Arg(value, cst.Name(name), equal=tight) for name, value in values.items()]


def _is_off(value: cst.BaseExpression) -> bool:
    return isinstance(value, cst.Name) and value.value in ("None", "False")


def _expression(dotted: str) -> cst.Attribute | cst.Name:
    expression = cst.parse_expression(dotted)
    assert isinstance(expression, cst.Attribute | cst.Name)
    return expression
