"""Files of real releases, reformatted as a fork does it."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from mcore_compat.patching.catalogue import rules
from mcore_compat.patching.rules import judge_text

Formatter = Callable[[str], str]


def begun_in(release: str, spans: Mapping[str, tuple[str, str]]) -> list[str]:
    """The patches that this release is the first to need."""
    return [patch for patch, (first, _) in spans.items() if first == release]


def require_same_program(tree: Path, patches: Iterable[str], reformat: Formatter) -> None:
    """Each patch makes of the reformatted files what it makes of the files, and then they are reformatted."""
    for patch in patches:
        for target in rules(patch).files:
            path = next((path for path in target.path if (tree / path).exists()), None)
            if path is not None:
                text = (tree / path).read_text(encoding="utf-8")
                plain, moved = (judge_text(target, each, path) for each in (text, reformat(text)))
                assert moved.state == plain.state, (patch, moved.reason)
                assert _program(reformat(moved.after)) == _program(reformat(plain.after)), patch


def _program(text: str) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # upstream's own escapes
        return ast.dump(ast.parse(text))
