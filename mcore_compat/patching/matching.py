"""Finds what a rule matches in Python text."""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from ast_grep_py import SgNode, SgRoot

from mcore_compat.errors import PatchError
from mcore_compat.patching.format import Check

_SCOPES: Mapping[str, Any] = {"any": [{"kind": "function_definition"}, {"kind": "class_definition"}]}
_BLOCKS = ("block", "module")
# Strings, so that what looks like a comment in them is none, and comments.
_LEXEME = re.compile(
    r'''"""(?:[^\\"]|\\.|"(?!""))*"""|"(?:[^\\"\n]|\\.)*"'''
    r"""|'''(?:[^\\']|\\.|'(?!''))*'''|'(?:[^\\'\n]|\\.)*'"""
    r"|#[^\r\n]*",
    re.DOTALL,
)


@dataclass(frozen=True)
class Span:
    """A stretch of the text, in characters."""

    start: int
    stop: int


class Source:
    """Python text that rules are matched on, its comments blanked.

    Args:
        text: The file's text; every offset counts its characters.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.bare = _LEXEME.sub(_blanked, text)
        self._root = SgRoot(self.bare, "python").root()

    def find(self, check: Check) -> list[Match]:
        """What the rule of ``check`` matches, in order.

        Raises:
            PatchError: ast-grep does not understand the rule.
        """
        config = {"rule": _scoped(check.rule, check.within), "constraints": dict(check.constraints)}
        try:
            nodes = self._root.find_all(config)  # type: ignore[call-overload]  # its types list the known keys
        except Exception as error:  # all that ast-grep raises
            cause = str(error).partition("Stack backtrace")[0].strip()
            raise PatchError(
                f"ast-grep cannot read the rule {describe(check)}: {' '.join(cause.split())}",
                hint="patches/README.md lists what a rule may hold",
            ) from None
        return [Match(self, node) for node in nodes]

    def line(self, offset: int) -> int:
        """Number of the line that holds ``offset``, from 1."""
        return self.text.count("\n", 0, offset) + 1

    @cached_property
    def unreadable(self) -> int:
        """First line that ast-grep cannot read, whether Python can or not; 0: it reads them all."""
        errors = self._root.find_all(kind="ERROR")
        return int(errors[0].range().start.line) + 1 if errors else 0

    @cached_property
    def strings(self) -> list[Span]:
        """Every string literal."""
        return [_span(node) for node in self._root.find_all(kind="string")]

    @cached_property
    def scopes(self) -> dict[str, range]:
        """Qualified name of every function and class, and its lines."""
        found = {}
        for node in self._root.find_all({"rule": _SCOPES}):  # type: ignore[call-overload]
            chain = [node, *(up for up in node.ancestors() if up.kind().endswith("_definition"))]
            names = [name.text() for up in reversed(chain) if up.kind() != "decorated_definition" for name in _name(up)]
            found[".".join(names)] = range(node.range().start.line + 1, node.range().end.line + 2)
        return found

    def nearest(self, check: Check) -> tuple[int, str]:
        """Line and text of what resembles the missing match of ``check`` most; 0 where nothing does."""
        scopes = [lines for scope, lines in self.scopes.items() if _is_inside(check.within, scope)]
        if not scopes:
            near = difflib.get_close_matches(check.within, self.scopes, n=1, cutoff=0.5)
            return (self.scopes[near[0]].start, near[0]) if near else (0, "")
        wanted = next(_patterns(check.rule), "").strip().partition("\n")[0]
        numbered = enumerate(self.text.split("\n"), 1)
        lines = {line.strip(): number for number, line in numbered if any(number in scope for scope in scopes)}
        near = difflib.get_close_matches(wanted, lines, n=1, cutoff=0.3)
        return (lines[near[0]], near[0]) if near else (0, "")


@lru_cache(maxsize=64)
def source(text: str) -> Source:
    """The source of ``text``, parsed once however many patches look at it."""
    return Source(text)


@dataclass(frozen=True)
class Match:
    """One node that a rule matched."""

    source: Source
    _node: SgNode

    @property
    def span(self) -> Span:
        """Where it is."""
        return _span(self._node)

    @property
    def line(self) -> int:
        """Its first line, from 1."""
        return int(self._node.range().start.line) + 1

    @property
    def statement(self) -> Span:
        """The smallest statement that holds it, decorators included."""
        chain = [self._node, *self._node.ancestors()]
        inside = itertools.pairwise(chain)
        return next((_span(node) for node, parent in inside if parent.kind() in _BLOCKS), self.span)

    def capture(self, name: str) -> Span | None:
        """What ``$name`` stands for."""
        node = self._node.get_match(name)
        return _span(node) if node else None

    def captures(self, name: str, *, bare: bool = False) -> Span | None:
        """What ``$$$name`` stands for, ``bare``: without a last comma; an empty span where it matched nothing."""
        nodes = self._node.get_multiple_matches(name)
        if bare and nodes and nodes[-1].kind() == ",":
            nodes = nodes[:-1]
        return Span(_span(nodes[0]).start, _span(nodes[-1]).stop) if nodes else Span(0, 0)


def describe(check: Check) -> str:
    """The rule of ``check`` in one line."""
    pattern = next(_patterns(check.rule), "") or str(dict(check.rule))
    inside = f" in {check.within}" if check.within else ""
    return f"{' '.join(pattern.split())!r}{inside}"


def _span(node: SgNode) -> Span:
    place = node.range()
    return Span(place.start.index, place.end.index)


def _blanked(lexeme: re.Match[str]) -> str:
    found = lexeme.group()
    return " " * len(found) if found.startswith("#") else found


def _scoped(rule: Mapping[str, Any], within: str) -> dict[str, Any]:
    scope: dict[str, Any] = {}
    for name in within.split(".") if within else ():
        outer = {"inside": scope} if scope else {}
        scope = {**_SCOPES, "has": {"field": "name", "regex": f"^{re.escape(name)}$"}, **outer, "stopBy": "end"}
    return {"all": [dict(rule), {"inside": scope}]} if scope else dict(rule)


def _name(node: SgNode) -> list[SgNode]:
    name = node.field("name")
    return [name] if name else []


def _patterns(rule: object) -> Iterator[str]:
    """Text of every pattern of a rule, outermost first, those under ``not`` left out."""
    if isinstance(rule, Mapping):
        own = rule.get("pattern") or rule.get("regex")
        if own:
            yield own if isinstance(own, str) else own["context"]
        for key, part in rule.items():
            if key != "not":
                yield from _patterns(part)
    elif isinstance(rule, list):
        for part in rule:
            yield from _patterns(part)


def _is_inside(within: str, scope: str) -> bool:
    """Whether the chain of names ``within`` occurs in ``scope``, in order."""
    rest = iter(scope.split("."))
    return not within or all(name in rest for name in within.split("."))
