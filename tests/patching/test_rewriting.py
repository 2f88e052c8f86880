"""Matching and edits on text: exactly what the rule says, in the file's own layout, or a refusal."""

from __future__ import annotations

from typing import Any

import pytest

from mcore_compat.errors import PatchError
from mcore_compat.patching.format import Check, Edit, Placement
from mcore_compat.patching.matching import source
from mcore_compat.patching.rewriting import Unplaceable, replacement, rewrite

F_X: dict[str, Any] = {"pattern": "f($X)"}


def edited(text: str, rule: dict[str, Any], placement: Placement, template: str, within: str = "") -> str:
    edit = Edit(Check(rule, within=within), placement, template)
    return rewrite(text, [replacement(edit, match) for match in source(text).find(edit.check)])


@pytest.mark.parametrize(
    ("text", "template", "result"),
    [
        ("y = f(1)  # c\n", "g($X)", "y = g(1)  # c\n"),
        ("y = f(\n    1,  # c\n)\n", "g($X)", "y = g(1)\n"),
        ("# 😀 é\ny = f('ü')\n", "g($X, $X)", "# 😀 é\ny = g('ü', 'ü')\n"),
        ("f(1)\nf(2)", "g($X)", "g(1)\ng(2)"),
        ("f(a[\n  1])\n", "g($X)", "g(a[\n  1])\n"),
        ("f(1)\n", "cost = '$$5'", "cost = '$5'\n"),
        ("if a:\n  f(1)\n  x\n", "if b:\n    g($X)", "if a:\n  if b:\n      g(1)\n  x\n"),
        ("if a:\n\tf(1)\n\tx\n", "y\ng($X)", "if a:\n\ty\n\tg(1)\n\tx\n"),
        ("x\nf(1)  # gone, too\ny\n", "", "x\ny\n"),
        ("x = [f(1)]\n", "", "x = []\n"),
    ],
)
def test_fix(text: str, template: str, result: str) -> None:
    assert edited(text, F_X, "fix", template) == result


@pytest.mark.parametrize(
    ("text", "before", "after"),
    [
        ("f(1)\n", "new\nf(1)\n", "f(1)\nnew\n"),
        ("f(1)", "new\nf(1)", "f(1)\nnew"),
        (
            "if a:\n    x = f(1)  # c\n    y\n",
            "if a:\n    new\n    x = f(1)  # c\n    y\n",
            "if a:\n    x = f(1)  # c\n    new\n    y\n",
        ),
        ("x = [\n    f(1),  # c\n]\ny\n", "new\nx = [\n    f(1),  # c\n]\ny\n", "x = [\n    f(1),  # c\n]\nnew\ny\n"),
        ("f(1)\r\n# c\r\n", "new\r\nf(1)\r\n# c\r\n", "f(1)\r\nnew\r\n# c\r\n"),
        (
            "@deco(f(1))\ndef g():\n    x\n",
            "new\n@deco(f(1))\ndef g():\n    x\n",
            "@deco(f(1))\ndef g():\n    x\nnew\n",
        ),
    ],
)
def test_insertions_leave_the_statement_as_it_is(text: str, before: str, after: str) -> None:
    assert edited(text, F_X, "before", "new\n") == before
    assert edited(text, F_X, "after", "new\n") == after


def test_captured_lines_move_along_but_not_inside_strings() -> None:
    text = 'def a():\n    f(\n        [\n            1,\n            """\n            text""",\n        ]\n    )\n'
    moved = edited(text, F_X, "fix", "if b:\n    g(\n        $X\n    )")
    assert moved == (
        'def a():\n    if b:\n        g(\n            [\n                1,\n                """\n'
        '            text""",\n            ]\n        )\n'
    )


def test_several_captures_keep_their_comments() -> None:
    text = "f(1,  # one\n  2)\n"
    assert edited(text, {"pattern": "f($$$ALL)"}, "fix", "g(0, $$$ALL)") == "g(0, 1,  # one\n  2)\n"
    assert edited("f()\n", {"pattern": "f($$$ALL)"}, "fix", "g($$$ALL)") == "g()\n"


def test_last_comma_of_several_captures_is_not_doubled() -> None:
    rule = {"pattern": "f($$$ALL)"}
    assert edited("f(\n    1,  # one\n)\n", rule, "fix", "f($$$ALL, x=2)") == "f(1, x=2)\n"
    assert edited("f(1, 2,)\n", rule, "fix", "f(($$$ALL), x=2)") == "f((1, 2,), x=2)\n"


@pytest.mark.parametrize("text", ["a; f(1)\n", "f(1); a\n", "if a: f(1)\n", "with a: f(1)\n"])
@pytest.mark.parametrize(("placement", "template"), [("before", "x"), ("after", "x"), ("fix", "x\ny")])
def test_statement_that_shares_its_line_is_refused(text: str, placement: Placement, template: str) -> None:
    with pytest.raises(Unplaceable, match="shares its line"):
        edited(text, F_X, placement, template)


def test_overlapping_edits_are_refused() -> None:
    with pytest.raises(Unplaceable, match="overlap"):
        edited("f(f(1))\n", F_X, "fix", "g($X)")


@pytest.mark.parametrize(
    ("text", "within", "count"),
    [
        ("f(1)\n", "g", 0),
        ("def g():\n    f(1)\n", "g", 1),
        ("class A:\n    @p\n    async def g(self):\n        if x:\n            f(1)\n", "A.g", 1),
        ("class A:\n    def g(self):\n        f(1)\ndef g():\n    f(1)\n", "A.g", 1),
        ("class A:\n    def g(self):\n        f(1)\ndef g():\n    f(1)\n", "g", 2),
        ("class g:\n    def A(self):\n        f(1)\n", "A.g", 0),
    ],
)
def test_scope(text: str, within: str, count: int) -> None:
    assert len(source(text).find(Check(F_X, within=within))) == count


@pytest.mark.parametrize(
    "text", ["f(  # c\n    1  # f(2)\n)", "f(1,)", "'''\n# no comment'''\nf(1)", "f( # 😀\r\n 1)\r\n"]
)
def test_comments_and_layout_do_not_matter(text: str) -> None:
    assert len(source(text).find(Check(F_X))) == 1


@pytest.mark.parametrize(
    "string",
    [
        '"# no"',
        "'# no'",
        '"""\n# no\n"""',
        "'''\n# \"no\n'''",
        r'"\"# no"',
        r"r'\'# no'",
        "f'{x:#x}# no'",
        '""',
        "'\"' '#'",
    ],
)
def test_what_looks_like_a_comment_in_a_string_is_none(string: str) -> None:
    text = f"x = {string}  # yes\n"
    assert source(text).bare == f"x = {string}       \n"


def test_operators_do() -> None:
    assert source("a - b\n").find(Check({"pattern": "a + b"})) == []


@pytest.mark.parametrize("rule", [{"patern": "x"}, {"kind": "no_such_kind"}, {"inside": {"has": 3}}])
def test_rule_that_is_none(rule: dict[str, Any]) -> None:
    with pytest.raises(PatchError, match="ast-grep cannot read the rule") as caught:
        source("x\n").find(Check(rule))
    assert "Stack backtrace" not in str(caught.value)


def test_template_with_an_unknown_capture() -> None:
    with pytest.raises(PatchError, match=r"the template uses \$Y"):
        edited("f(1)\n", F_X, "fix", "g($Y)")
