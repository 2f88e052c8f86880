"""A rank that has to be stopped."""

import os
import time
from pathlib import Path


def sleep(pid: str) -> None:
    """Say who it is, and sleep for longer than any test waits."""
    Path(f"{pid}.new").write_text(str(os.getpid()), encoding="utf-8")
    Path(f"{pid}.new").rename(pid)
    time.sleep(600)
