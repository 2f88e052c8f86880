"""Which release a program or a target means."""

from __future__ import annotations

from packaging.version import InvalidVersion, Version

from mcore_compat.errors import ConfigError
from mcore_compat.matrix.table import releases


def newest_of(era: str) -> str:
    """The newest release of the table that belongs to ``era``: a release, or a minor release.

    Raises:
        ConfigError: There is none.
    """
    try:
        wanted = Version(era).release
    except InvalidVersion:
        wanted = ()
    fitting = [row.version for row in releases() if wanted and Version(row.version).release[: len(wanted)] == wanted]
    if not fitting:
        raise ConfigError(f"no release of Megatron-Core belongs to {era!r}", hint="mcore-compat matrix list")
    return fitting[-1]
