"""Turns an edit and what it matched into replacements of text, exactly or not at all."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from mcore_compat.errors import PatchError
from mcore_compat.patching.format import Edit
from mcore_compat.patching.matching import Match, Source, Span

_CAPTURE = re.compile(r"\$\$\$(?P<many>[A-Z_][A-Z0-9_]*)(?P<goes_on>(?=\s*,))?|\$(?P<one>[A-Z_][A-Z0-9_]*)|\$\$")


class Unplaceable(Exception):
    """An edit that cannot be made exactly; the message says why and at which line."""

    def __init__(self, line: int, why: str) -> None:
        super().__init__(why)
        self.line = line


@dataclass(frozen=True)
class Replacement:
    """``text`` in place of a span; an empty span is an insertion."""

    span: Span
    text: str
    line: int


def replacement(edit: Edit, match: Match) -> Replacement:
    """What ``edit`` makes of one match.

    Raises:
        Unplaceable: The match shares its line with other code and the edit needs lines of its own.
        PatchError: The template names something that the rule does not capture.
    """
    if edit.placement == "fix":
        return _fix(edit.template, match)
    return _insertion(edit, match)


def rewrite(text: str, replacements: Iterable[Replacement]) -> str:
    """``text`` with all replacements made.

    Raises:
        Unplaceable: Two of them overlap.
    """
    pieces, done = [], 0
    for each in sorted(replacements, key=lambda each: (each.span.start, each.span.stop)):
        if each.span.start < done:
            raise Unplaceable(each.line, "two edits overlap")
        pieces += [text[done : each.span.start], each.text]
        done = each.span.stop
    return "".join([*pieces, text[done:]])


def _fix(template: str, match: Match) -> Replacement:
    lines = template.removesuffix("\n").split("\n")
    whole = match.span == match.statement
    if lines == [""] and whole and _stands_alone(match.source, match.span):
        return Replacement(_lines_of(match.source, match.span), "", match.line)
    if len(lines) > 1 and whole:
        _require_alone(match)
    indent = _indent(match.source.text, match.span.start)
    return Replacement(match.span, _fill(lines, indent, match), match.line)


def _insertion(edit: Edit, match: Match) -> Replacement:
    _require_alone(match)
    text, place = match.source.text, _lines_of(match.source, match.statement)
    indent = _indent(text, match.statement.start)
    newline = newline_at(text, place.start)
    filled = indent + _fill(edit.template.removesuffix("\n").split("\n"), indent, match)
    if edit.placement == "before":
        return Replacement(Span(place.start, place.start), filled + newline, match.line)
    if text[: place.stop].endswith("\n"):
        return Replacement(Span(place.stop, place.stop), filled + newline, match.line)
    return Replacement(Span(place.stop, place.stop), newline + filled, match.line)


def newline_at(text: str, offset: int) -> str:
    """The line ending in use where ``offset`` is: of its line, else of the line before."""
    stop = text.find("\n", offset)
    stop = text.rfind("\n", 0, offset) if stop < 0 else stop
    return "\r\n" if stop > 0 and text[stop - 1] == "\r" else "\n"


def _require_alone(match: Match) -> None:
    if not _stands_alone(match.source, match.statement):
        raise Unplaceable(match.line, "the statement shares its line with another one")


def _stands_alone(source: Source, span: Span) -> bool:
    lines = _lines_of(source, span)
    return not (source.bare[lines.start : span.start].strip() or source.bare[span.stop : lines.stop].strip())


def _lines_of(source: Source, span: Span) -> Span:
    start = source.text.rfind("\n", 0, span.start) + 1
    stop = source.text.find("\n", span.stop)
    return Span(start, len(source.text) if stop < 0 else stop + 1)


def _indent(text: str, offset: int) -> str:
    line = text[text.rfind("\n", 0, offset) + 1 :]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _fill(lines: list[str], indent: str, match: Match) -> str:
    """The template's lines with captures filled in; all but the first get ``indent``."""
    newline = newline_at(match.source.text, match.span.start)
    filled = []
    for number, line in enumerate(lines):
        at = indent + _indent(line, 0)
        expanded = _CAPTURE.sub(lambda found, at=at: _captured(found, at, match), line)  # type: ignore[misc]
        filled.append(indent + expanded if number and line else expanded)
    return newline.join(filled)


def _captured(found: re.Match[str], indent: str, match: Match) -> str:
    if found.group() == "$$":
        return "$"
    # A comma after the last of many is optional in Python, a second one is an error.
    bare = found["goes_on"] is not None
    span = match.captures(found["many"], bare=bare) if found["many"] else match.capture(found["one"])
    if span is None:
        raise PatchError(
            f"the template uses {found.group()}, which its rule does not capture",
            hint="a capture belongs to the pattern that matches the node itself, not to one under `not`",
        )
    return _reindented(match.source, span, indent)


def _reindented(source: Source, span: Span, indent: str) -> str:
    """The captured text, its further lines moved as far as its first one; never inside a string."""
    old = _indent(source.text, span.start)
    text = source.text[span.start : span.stop]
    if old == indent or "\n" not in text:
        return text
    return "".join(_moved(source, span, old, indent))


def _moved(source: Source, span: Span, old: str, new: str) -> Iterator[str]:
    offset = span.start
    for line in source.text[span.start : span.stop].splitlines(keepends=True):
        inside = any(string.start < offset < string.stop for string in source.strings)
        movable = offset > span.start and not inside and line.strip() and line.startswith(old)
        yield new + line[len(old) :] if movable else line
        offset += len(line)
