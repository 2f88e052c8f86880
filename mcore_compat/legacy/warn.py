"""One warning per redirect, and the error of what cannot be served."""

from __future__ import annotations

import warnings

from mcore_compat.errors import FeatureUnavailable

_told: set[str] = set()


class LegacyUse(FutureWarning):
    """A name or a call shape of an earlier Megatron was used and served."""


class NotServed(FeatureUnavailable, ImportError):
    """A name of an earlier Megatron that cannot be served here; an import error for those who expect one."""


def told(use: str, instead: str) -> None:
    """Warn about ``use``, the first time only."""
    if use not in _told:
        _told.add(use)
        warnings.warn(f"{use} is of an earlier Megatron and served by mcore_compat; instead: {instead}", LegacyUse, 3)


def forget() -> None:
    """Warn again about everything."""
    _told.clear()
