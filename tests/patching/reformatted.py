"""Files of real releases, reformatted as a fork does it."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from mcore_compat.matrix.overlay import overlay
from mcore_compat.patching.catalogue import rules
from mcore_compat.patching.rules import judge_text
from tests.patching.megatrons import checkout_of
from tests.patching.test_releases import NEEDED, OF_THE_REPOSITORY


def begun_in(release: str, spans: Mapping[str, tuple[str, str]]) -> list[str]:
    """The patches that this release is the first to need."""
    return [patch for patch, (first, _) in spans.items() if first == release]


class Fork:
    """The story of a fork that reformatted everything; each formatter's is a subclass."""

    def reformatted(self, text: str) -> str:
        """The text as the fork has it."""
        raise NotImplementedError

    @pytest.mark.sampled("0.6.0")
    def test_same_program_whether_patched_before_or_after(self, release: str) -> None:
        self._require_same_program(overlay(release), begun_in(release, NEEDED))

    @pytest.mark.parametrize("version", ["0.4.0", "0.5.0"])
    def test_same_program_in_the_repository(self, version: str, tmp_path: Path) -> None:
        tree = checkout_of(f"core_v{version}", tmp_path)
        self._require_same_program(tree, begun_in(version, OF_THE_REPOSITORY))

    def _require_same_program(self, tree: Path, patches: Iterable[str]) -> None:
        """Each patch makes of the reformatted files what it makes of the files, and then they are reformatted."""
        for patch in patches:
            for target in rules(patch).files:
                path = next((path for path in target.path if (tree / path).exists()), None)
                if path is not None:
                    text = (tree / path).read_text(encoding="utf-8")
                    plain, moved = (judge_text(target, each, path) for each in (text, self.reformatted(text)))
                    assert moved.state == plain.state, (patch, moved.reason)
                    made, remade = (_program(self.reformatted(verdict.after)) for verdict in (plain, moved))
                    assert remade == made, patch


def _program(text: str) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # upstream's own escapes
        return ast.dump(ast.parse(text))
