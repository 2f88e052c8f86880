"""A fork reformatted real releases with black."""

from __future__ import annotations

import black

from tests.patching.reformatted import Fork


class TestBlack(Fork):
    def reformatted(self, text: str) -> str:
        return black.format_str(text, mode=black.Mode(line_length=60))
