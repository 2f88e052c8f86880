"""A fork reformatted a real release's file with black."""

from __future__ import annotations

import ast

import black
import pytest

from mcore_compat.matrix.overlay import overlay
from mcore_compat.patching.catalogue import rules
from mcore_compat.patching.rules import judge_text


def reformatted(text: str) -> str:
    return black.format_str(text, mode=black.Mode(line_length=60))


@pytest.mark.parametrize(
    ("version", "name"), [("0.7.0", "ddp-broadcast-params"), ("0.19.2", "cross-entropy-logits-kept")]
)
def test_same_program_whether_patched_before_or_after(version: str, name: str) -> None:
    [target] = rules(name).files
    path = target.path[0]
    text = (overlay(version) / path).read_text(encoding="utf-8")
    other = reformatted(text)
    assert other != text
    plain, moved = (judge_text(target, source, path) for source in (text, other))
    assert (plain.state, moved.state) == ("applied", "applied"), moved.reason
    assert ast.dump(ast.parse(moved.after)) == ast.dump(ast.parse(reformatted(plain.after)))
