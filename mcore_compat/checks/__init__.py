"""Guards that make silent failures loud."""

from __future__ import annotations

from mcore_compat.checks.parity import Parity, reference_parity
from mcore_compat.checks.update import UpdateGuard

__all__ = ["Parity", "UpdateGuard", "reference_parity"]
