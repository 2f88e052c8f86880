"""Takes imports out that nothing uses any more; comments on their lines and above them stay."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import libcst as cst
from libcst import matchers

from mcore_compat.audit.layout import comments_in, of_import, same_comments


class Unimport(cst.CSTTransformer):
    """Removes names from ``from ... import``; a block of nothing else keeps them, and so does a ``try``.

    Args:
        names: As the file calls them.
    """

    def __init__(self, names: set[str]) -> None:
        super().__init__()
        self._names = names

    def visit_Try(self, node: cst.Try) -> bool:
        """Whether the import fails may be all that it asks."""
        return False

    def leave_Module(self, original_node: cst.Module, updated_node: cst.Module) -> cst.Module:
        """At the top of the file."""
        return updated_node.with_changes(**self._without(updated_node))

    def leave_IndentedBlock(
        self, original_node: cst.IndentedBlock, updated_node: cst.IndentedBlock
    ) -> cst.IndentedBlock:
        """Inside of functions and branches."""
        return updated_node.with_changes(**self._without(updated_node))

    def leave_ImportFrom(self, original_node: cst.ImportFrom, updated_node: cst.ImportFrom) -> cst.ImportFrom:
        """Names beside others."""
        left = self._left(updated_node)
        if isinstance(updated_node.names, cst.ImportStar) or not 0 < len(left) < len(updated_node.names):
            return updated_node
        if updated_node.lpar is None or updated_node.rpar is None:
            last = left[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
            return updated_node.with_changes(names=[*left[:-1], last])
        bracket = of_import(updated_node.names, updated_node.lpar, updated_node.rpar)
        before, names = bracket.only(lambda item: item.node in left).written()
        fewer = updated_node.with_changes(names=names, lpar=cst.LeftParen(before), rpar=cst.RightParen())
        return fewer if same_comments(fewer, updated_node) else updated_node

    def _left(self, node: cst.ImportFrom) -> list[cst.ImportAlias]:
        aliases = () if isinstance(node.names, cst.ImportStar) else node.names
        return [alias for alias in aliases if (alias.evaluated_alias or alias.evaluated_name) not in self._names]

    def _without(self, block: cst.Module | cst.IndentedBlock) -> dict[str, Any]:
        """Fields of the block without statements that import nothing else."""
        kept: list[cst.BaseStatement] = []
        above: list[cst.EmptyLine] = []
        for statement in block.body:
            if isinstance(statement, cst.SimpleStatementLine) and self._is_unused(statement):
                own = comments_in(statement.with_changes(leading_lines=[]))
                above += [*statement.leading_lines, *(cst.EmptyLine(comment=comment) for comment in own)]
            elif isinstance(statement, cst.BaseStatement):
                kept.append(_below(above, statement))
                above = []
        return {"body": kept, "footer": [*above, *block.footer]} if kept else {}

    def _is_unused(self, statement: cst.SimpleStatementLine) -> bool:
        (first, *others) = statement.body
        names_only = matchers.matches(first, matchers.ImportFrom(names=~matchers.ImportStar()))
        return names_only and not others and not self._left(cst.ensure_type(first, cst.ImportFrom))


def _below(above: Sequence[cst.EmptyLine], statement: cst.BaseStatement) -> cst.BaseStatement:
    """The statement with these lines before it; blank ones only where it has none of its own."""
    own: Sequence[cst.EmptyLine] = getattr(statement, "leading_lines", ())  # every kind of statement has them
    lines = [*above, *own] if any(line.comment for line in above) or not own else own
    return statement.with_changes(leading_lines=lines)
