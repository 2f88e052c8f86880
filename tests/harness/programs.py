"""What the tests of the launcher run in each rank; needs no torch."""

from __future__ import annotations

import os
import time


def whoami(*extra: int) -> dict[str, object]:
    return {
        "rank": os.environ["RANK"],
        "world": os.environ["WORLD_SIZE"],
        "extra": extra,
    }


def second_rank_fails() -> None:
    if os.environ["RANK"] == "1":
        raise ValueError("the second rank is broken")


def sleep() -> None:
    time.sleep(60)
