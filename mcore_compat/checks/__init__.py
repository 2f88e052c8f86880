"""Guards that make silent failures loud."""

from __future__ import annotations

from mcore_compat.checks.parity import Parity, reference_parity

__all__ = ["Parity", "reference_parity"]
