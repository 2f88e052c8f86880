"""Laws: layout and comments never move an edit, and diffs of our own lead both ways."""

from __future__ import annotations

import ast
import io
import random
import tokenize
from collections.abc import Iterator

from hypothesis import given, settings
from hypothesis import strategies as st

from mcore_compat.patching.compiling import line_map
from mcore_compat.patching.hunks import Spot, bytes_of, fit, hunks_of, lines_of, parse, put, unified
from mcore_compat.patching.rules import judge_text
from tests.patching.test_catalogue import CASES, Case

COMMENTS = ("# return x", "#: self.group[0]", "#", "# 😀", "# )", "# def f(x):", '# """')
# Two blanks after a line end stand for the margin.
BREAKS = (" ", "   ", "\n  ", "\n        ", "  # (\n  ", "# 'x\n  ")
BETWEEN = ("\n", "# at column 0\n", "\t# deep\n", "\n\n \n")
SILENT = (tokenize.NL, tokenize.COMMENT, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)


def insertions(text: str, chance: random.Random, density: float) -> Iterator[tuple[int, str]]:
    """Offsets at which layout may change, and what to insert there."""
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    depth = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        begin = starts[token.start[0] - 1] + token.start[1]
        wanted = chance.random() < density
        if token.type == tokenize.NEWLINE and wanted:
            yield begin, "  " + chance.choice(COMMENTS)
            if begin < len(text):
                yield begin + 1, chance.choice(BETWEEN)
        elif depth and wanted and token.type not in SILENT:
            yield begin, chance.choice(BREAKS)
        if token.type == tokenize.OP:
            depth += (token.string in ("(", "[", "{")) - (token.string in (")", "]", "}"))


def relaid(text: str, seed: int, density: float, margin: str) -> str:
    """The same program, laid out anew; lines inside brackets start at ``margin``."""
    for offset, new in reversed([*insertions(text, random.Random(seed), density)]):
        text = text[:offset] + new.replace("\n  ", f"\n{margin}") + text[offset:]
    return text


@settings(max_examples=250, deadline=None)
@given(
    st.sampled_from(CASES),
    st.integers(0, 2**32),
    st.sampled_from([0.05, 0.3, 0.9]),
    st.sampled_from(["", " " * 30]),
    st.sampled_from(["\n", "\r\n"]),
)
def test_layout_never_moves_an_edit(case: Case, seed: int, density: float, margin: str, newline: str) -> None:
    before, after = (ast.dump(ast.parse(text)) for text in (case.example.before, case.example.after))
    text = relaid(case.example.before, seed, density, margin)
    assert ast.dump(ast.parse(text)) == before, "the test changed the program"
    verdict = judge_text(case.target, text.replace("\n", newline), "it.py")
    # ast-grep loses its way in lines inside brackets that stand left of the statement they belong to.
    assert verdict.state == "applied" or (not margin and "cannot be read by ast-grep" in verdict.reason), verdict
    if verdict.state == "applied":
        assert ast.dump(ast.parse(verdict.after)) == after
        assert verdict.after.count("\r\n") == (verdict.after.count("\n") if newline == "\r\n" else 0)


LINES = st.lists(st.sampled_from(["a", "b", "c", "", " a", "a\r", "\x0c", "é"]), max_size=12)
TEXTS = st.builds(lambda lines, end: ("\n".join(lines) + end).encode(), LINES, st.sampled_from(["", "\n"]))


@settings(max_examples=150, deadline=None)
@given(TEXTS, TEXTS)
def test_a_diff_makes_exactly_the_other_file(before: bytes, after: bytes) -> None:
    if before == after:
        return
    hunks = hunks_of(parse(unified(before, after, "f"), "f")[0])
    for old, new, way in ((before, after, hunks), (after, before, [hunk.reversed for hunk in hunks])):
        spots = fit(lines_of(old), way, str)
        assert all(isinstance(spot, Spot) for spot in spots)
        assert bytes_of(put(lines_of(old), way, spots, None)) == new  # type: ignore[arg-type]


@settings(max_examples=100, deadline=None)
@given(TEXTS, TEXTS)
def test_line_numbers_only_grow_and_stay_in_the_file(before: bytes, after: bytes) -> None:
    numbers = line_map(before, after)[1:]
    assert numbers == sorted(numbers)
    assert len(numbers) == after.count(b"\n") + 1
    assert all(1 <= number <= before.count(b"\n") + 1 for number in numbers)
