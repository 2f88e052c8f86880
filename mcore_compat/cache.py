"""Where the package keeps what it fetched, and what takes longer to make than to read back."""

from __future__ import annotations

import os
from pathlib import Path


def default_cache() -> Path:
    """``$MCORE_COMPAT_CACHE``, else ``mcore_compat`` in the user's cache folder."""
    chosen = os.environ.get("MCORE_COMPAT_CACHE")
    user = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(chosen).expanduser().absolute() if chosen else user / "mcore_compat"
