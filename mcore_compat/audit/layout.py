"""What stands between two brackets, item by item, so that items can go or change and every comment stays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

import libcst as cst
from libcst import matchers

NodeT = TypeVar("NodeT", bound=cst.CSTNode)
_Gap = cst.BaseParenthesizableWhitespace
_STEP = "    "


def comments_in(node: cst.CSTNode) -> list[cst.Comment]:
    """All comments inside, in order."""
    found = matchers.findall(node, matchers.Comment())
    return [comment for comment in found if isinstance(comment, cst.Comment)]


def same_comments(before: cst.CSTNode, after: cst.CSTNode) -> bool:
    """Whether both have the same ones, in whatever order."""
    texts = [sorted(comment.value for comment in comments_in(node)) for node in (before, after)]
    return texts[0] == texts[1]


@dataclass(frozen=True)
class Item(Generic[NodeT]):
    """One argument or imported name.

    Attributes:
        node: The item itself.
        above: Comments on lines of their own before it.
        beside: The comment after it on its line, if any.
    """

    node: NodeT
    above: tuple[cst.Comment, ...] = ()
    beside: tuple[cst.Comment, ...] = ()


@dataclass(frozen=True)
class Bracket(Generic[NodeT]):
    """All of them. Written anew on one line, or one item a line where there were lines or comments.

    Attributes:
        items: In the order of the source.
        head: The comment beside the opening bracket, if any.
        tail: Comments on lines of their own before the closing one.
        lines: Whether it spans lines.
        indent: Of an item's line, relative to the statement.
        outer: Of the closing bracket's line.
    """

    items: tuple[Item[NodeT], ...] = ()
    head: tuple[cst.Comment, ...] = ()
    tail: tuple[cst.Comment, ...] = ()
    lines: bool = False
    indent: str = _STEP
    outer: str = ""

    def only(self, wanted: Callable[[Item[NodeT]], bool]) -> Bracket[NodeT]:
        """Without the other items; their comments stand before what follows."""
        kept: list[Item[NodeT]] = []
        left: tuple[cst.Comment, ...] = ()
        for item in self.items:
            if wanted(item):
                kept.append(replace(item, above=left + item.above))
                left = ()
            else:
                inside = comments_in(item.node.value) if isinstance(item.node, cst.Arg) else ()
                left += (*item.above, *inside, *item.beside)
        return replace(self, items=tuple(kept), tail=left + self.tail)

    def inner(self, items: Sequence[Item[NodeT]]) -> Bracket[NodeT]:
        """A bracket for some of the items, to stand as an item of this one."""
        step = self.indent.removeprefix(self.outer) or _STEP
        return Bracket(tuple(items), lines=self.spread, indent=self.indent + step, outer=self.indent)

    @property
    def spread(self) -> bool:
        """Whether it takes one line for each item."""
        beside = any(item.above or item.beside for item in self.items)
        return bool((self.lines and self.items) or beside or self.head or self.tail)

    def written(self) -> tuple[_Gap, list[NodeT]]:
        """What follows the opening bracket, and the items with all that follows each."""
        if not self.spread:
            return cst.SimpleWhitespace(""), [
                item.node.with_changes(comma=cst.MaybeSentinel.DEFAULT) for item in self.items
            ]
        last = len(self.items) - 1
        above = [*(item.above for item in self.items), self.tail]
        gaps = [
            self._line(beside, above[index + 1], self.outer if index == last else self.indent)
            for index, beside in enumerate((self.head, *(item.beside for item in self.items)), start=-1)
        ]
        nodes = [
            item.node.with_changes(comma=cst.Comma(whitespace_after=gap))
            for item, gap in zip(self.items, gaps[1:], strict=True)
        ]
        return gaps[0], nodes

    def _line(self, beside: tuple[cst.Comment, ...], above: tuple[cst.Comment, ...], indent: str) -> _Gap:
        end = cst.TrailingWhitespace(cst.SimpleWhitespace("  "), beside[0]) if beside else cst.TrailingWhitespace()
        own = [cst.EmptyLine(whitespace=cst.SimpleWhitespace(self.indent), comment=comment) for comment in above]
        return cst.ParenthesizedWhitespace(end, own, indent=True, last_line=cst.SimpleWhitespace(indent))


def of_call(call: cst.Call) -> Bracket[cst.Arg]:
    """The arguments of a call."""
    ends = [_after(argument.comma, argument.whitespace_after_arg) for argument in call.args]
    return _bracket(call.args, call.whitespace_before_args, ends)


def of_import(names: Sequence[cst.ImportAlias], left: cst.LeftParen, right: cst.RightParen) -> Bracket[cst.ImportAlias]:
    """The names of an import in brackets."""
    ends = [_after(alias.comma, right.whitespace_before) for alias in names]
    return _bracket(names, left.whitespace_after, ends)


def _after(comma: cst.Comma | cst.MaybeSentinel, otherwise: _Gap) -> _Gap:
    return comma.whitespace_after if isinstance(comma, cst.Comma) else otherwise


def _bracket(nodes: Sequence[NodeT], first: _Gap, ends: Sequence[_Gap]) -> Bracket[NodeT]:
    gaps = [first, *ends]
    items = tuple(Item(node, _own(gap), _beside(end)) for node, gap, end in zip(nodes, gaps, ends, strict=False))
    outer = _indent(gaps[-1], "")
    indent = _indent(first, outer)
    lines = any(isinstance(gap, cst.ParenthesizedWhitespace) for gap in gaps)
    return Bracket(items, _beside(first), _own(gaps[-1]), lines, indent if indent != outer else outer + _STEP, outer)


def _own(gap: _Gap) -> tuple[cst.Comment, ...]:
    lines = gap.empty_lines if isinstance(gap, cst.ParenthesizedWhitespace) else ()
    return tuple(line.comment for line in lines if line.comment)


def _beside(gap: _Gap) -> tuple[cst.Comment, ...]:
    comment = gap.first_line.comment if isinstance(gap, cst.ParenthesizedWhitespace) else None
    return (comment,) if comment else ()


def _indent(gap: _Gap, otherwise: str) -> str:
    return gap.last_line.value if isinstance(gap, cst.ParenthesizedWhitespace) else otherwise
