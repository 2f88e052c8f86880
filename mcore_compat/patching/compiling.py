"""Compiles patched text so that every line keeps the number that it, or the one it replaces, has in the file."""

from __future__ import annotations

import ast
import gc
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType
from typing import cast

from mcore_compat.patching.hunks import Hunk, hunks_of, parse, unified


def compiled(before: bytes, after: bytes, file: str) -> CodeType:
    """The code of ``after`` with the line numbers of ``before``.

    Args:
        before: What ``file`` holds.
        after: Python.
        file: Path that tracebacks name.
    """
    with _uninterrupted():
        tree = ast.parse(after, file)
        _renumber(tree, line_map(before, after))
        return compile(tree, file, "exec", dont_inherit=True)


def syntax_error(text: str) -> str:
    """Why Python cannot parse ``text``; empty: it can."""
    try:
        with _uninterrupted():
            ast.parse(text.encode("utf-8"))
    except (SyntaxError, ValueError) as error:
        return str(error)
    return ""


def line_map(before: bytes, after: bytes) -> list[int]:
    """For each line of ``after``, from 1, its line in ``before``; an added line has that of its neighbour above.

    Index 0 stands for no line.
    """
    sizes = before.count(b"\n") + 1, after.count(b"\n") + 1
    numbers = list(range(sizes[1] + 1))
    moved, done = 0, 1
    for hunk in hunks_of(parse(unified(before, after, "file"), "a diff of our own")[0]) if before != after else ():
        first = hunk.start_new + 1
        numbers[done:first] = [number - moved for number in range(done, first)]
        numbers[first : first + len(hunk.new)] = _lines_within(hunk)
        done = first + len(hunk.new)
        moved = hunk.start_new + len(hunk.new) - hunk.start - len(hunk.old)
    numbers[done:] = [number - moved for number in range(done, sizes[1] + 1)]
    return [min(number, sizes[0]) for number in numbers]


def _lines_within(hunk: Hunk) -> list[int]:
    exact = {new: old for old, new in hunk.context}
    found: list[int] = []
    number = hunk.start
    for index in range(len(hunk.new)):
        following = next((old for new, old in exact.items() if new >= index), len(hunk.old))
        number = hunk.start + exact[index] + 1 if index in exact else min(number + 1, hunk.start + following)
        found.append(max(number, 1))
    return found


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Neither warnings nor collections of garbage, which make parsing take twice as long and find nothing."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        with warnings.catch_warnings():
            # Upstream's own escapes; an import that uses the byte code cache is silent about them, too.
            warnings.simplefilter("ignore", SyntaxWarning)
            warnings.simplefilter("ignore", DeprecationWarning)
            yield
    finally:
        if was_on:
            gc.enable()


def _renumber(tree: ast.Module, numbers: list[int]) -> None:
    """Give all nodes their lines in ``numbers``; those that end before the first line that moved have them already."""
    first = next((line for line, number in enumerate(numbers) if line != number), None)
    left: list[ast.AST] = [tree] if first else []
    while first and left:
        node = left.pop()
        stop = getattr(node, "end_lineno", None)
        if stop is None or stop >= first:
            left += ast.iter_child_nodes(node)
            if stop is not None:
                _place(cast("ast.expr", node), numbers)


def _place(node: ast.expr, numbers: list[int]) -> None:
    node.lineno, node.end_lineno = numbers[node.lineno], numbers[node.end_lineno or node.lineno]
    if node.end_lineno == node.lineno and (node.end_col_offset or 0) < node.col_offset:
        # Lines that share a number now: columns no longer say which comes first.
        node.end_col_offset = node.col_offset
