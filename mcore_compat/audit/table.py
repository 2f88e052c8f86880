"""The one table of what changed for programs that use Megatron: between which releases a use works, and what instead.

``audit`` reads it to find uses that break on a release; ``legacy`` serves the rows that have ``served`` on releases
outside the range. Ranges are those of the releases' sources; those of :mod:`mcore_compat.seams.keywords` and of
:mod:`mcore_compat.seams.config.fields` are not repeated here but taken from there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from packaging.version import Version

from mcore_compat.audit.uses import KINDS, Use


@dataclass(frozen=True)
class Row:
    """One use of Megatron that works on some releases only.

    Attributes:
        use: What the program does.
        since: First release on which it works.
        until: Last release on which it works; empty: the newest one; before ``since``: none.
        change: What is different elsewhere.
        instead: What to write: the stable call.
        served: Object of :mod:`mcore_compat.legacy` that keeps it working (``module`` or ``module:name``), if any.
        broken: First and last release inside the range on which it does not work after all.
    """

    use: Use
    since: str
    until: str
    change: str
    instead: str
    served: str = ""
    broken: tuple[str, str] | None = None

    def works_on(self, version: str) -> bool:
        """Whether that release takes it."""
        asked = Version(version)
        if self.broken and Version(self.broken[0]) <= asked <= Version(self.broken[1]):
            return False
        return asked >= Version(self.since) and (not self.until or asked <= Version(self.until))

    def breaks_on(self, targets: Iterable[str]) -> bool:
        """Whether any of these releases does not take it."""
        return not all(map(self.works_on, targets))

    def boundary(self, version: str) -> str:
        """Where it stopped, or started, to work, as seen from a release on which it does not."""
        if self.broken:
            return f"does not work from {self.broken[0]} to {self.broken[1]}"
        if Version(version) < Version(self.since):
            return f"first works in {self.since}"
        never = Version(self.until) < Version(self.since)
        return "no release since 0.4.0 has it" if never else f"last worked in {self.until}"


@lru_cache(maxsize=1)
def rows() -> tuple[Row, ...]:
    """The whole table; where several rows fit a use, the first one that breaks speaks."""
    from mcore_compat.audit.rows import calls, core, keywords, repository

    return (*repository.ROWS, *core.ROWS, *calls.ROWS, *keywords.ROWS)


@lru_cache(maxsize=8)
def rows_about(kind: str) -> tuple[Row, ...]:
    """The rows whose uses are of that kind."""
    return tuple(row for row in rows() if KINDS[type(row.use)] == kind)
