"""A fork wraps the patched function in decorators."""

from __future__ import annotations

from pathlib import Path

from mcore_compat import patching
from tests.patching.trees import ALPHA, PATCH, PATCHED, alpha, states, tree_with

MARK = "    def scale(self"
DECORATED = '    @traced("scale", kind=str)\n    @cached  # since we call it often\n    async def scale(self'


def test_decorated_and_asynchronous(tmp_path: Path) -> None:
    tree = tree_with(tmp_path, ALPHA.replace(MARK, DECORATED))
    assert states(patching.apply(tree, files=[PATCH])) == ["applied"]
    assert alpha(tree) == PATCHED.replace(MARK, DECORATED)


def test_body_moved_into_an_inner_function(tmp_path: Path) -> None:
    inner = ALPHA.replace(MARK, "    def scale(self, x):\n        return wrap(self)\n\n    def inner(self")
    [result] = patching.check(tree_with(tmp_path, inner), files=[PATCH]).results
    assert result.state == "not applicable"
