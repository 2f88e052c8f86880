"""Which tests go to one worker of pytest-xdist, because they share what is dear."""

from __future__ import annotations

import re

from xdist.scheduler import LoadScopeScheduling

_CONTRACT_OF_A_RELEASE = re.compile(r"tests/contract/.*\[(\d+\.\d+\.\d+)\b")


class Sharing(LoadScopeScheduling):
    """The tests of a file share fixtures; those of the contract share the ranks of their release."""

    def _split_scope(self, nodeid: str) -> str:
        found = _CONTRACT_OF_A_RELEASE.match(nodeid)
        return f"tests/contract {found[1]}" if found else nodeid.partition("::")[0]
