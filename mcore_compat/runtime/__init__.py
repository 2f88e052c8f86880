"""Makes the Megatron that is on ``sys.path`` run in this process, on CUDA or on the CPU.

Importing this package loads neither torch nor Megatron.
"""

from __future__ import annotations

from mcore_compat.runtime.actions import Action, Report
from mcore_compat.runtime.session import prepare, report, restore

__all__ = ["Action", "Report", "prepare", "report", "restore"]
