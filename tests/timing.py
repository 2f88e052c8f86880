"""How long programs take, on a machine that may be busy."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence


def processor_seconds(command: Sequence[str]) -> float:
    """Processor time of a program that neither waits nor has threads: what it takes on a machine that is not busy."""
    before = os.times()
    subprocess.run(command, check=True, capture_output=True)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system
