"""The releases that the README promises and that tests run on by default."""

from __future__ import annotations

from itertools import pairwise

from mcore_compat.matrix.table import releases

DEFAULT_RELEASES = ("0.4.0", "0.5.0", "0.6.0", "0.12.3", "0.16.1", "0.19.2")


def ends_of_call_shapes() -> list[str]:
    """The first and the last release of each combination of variants, for tests that cost next to nothing."""
    rows = releases()
    changes = [(before.version, after.version) for before, after in pairwise(rows) if before.expect != after.expect]
    ends = {rows[0].version, rows[-1].version, *(version for change in changes for version in change)}
    return [row.version for row in rows if row.version in ends]
