"""What a layout leaves behind."""

from __future__ import annotations

import os
import warnings

import mcore_compat


def threads() -> list[int]:
    """Threads of this rank after each of three layouts was made and forgotten."""
    warnings.simplefilter("ignore")
    mcore_compat.prepare("cpu")
    left = []
    for tp in (1, 2, 1):
        mcore_compat.init_parallel(tp=tp)
        mcore_compat.reset()
        left.append(len(os.listdir("/proc/self/task")))
    return left
