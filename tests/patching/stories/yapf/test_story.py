"""A fork reformatted real releases with yapf."""

from __future__ import annotations

from yapf.yapflib.yapf_api import FormatCode

from tests.patching.reformatted import Fork


class TestYapf(Fork):
    def reformatted(self, text: str) -> str:
        return str(FormatCode(text, style_config="{based_on_style: google, indent_width: 2, column_limit: 60}")[0])
