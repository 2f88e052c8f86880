"""``megatron.timers`` of 0.4."""

from __future__ import annotations

__all__ = ["DummyTimer", "no_timers"]


class DummyTimer:
    """Takes the calls that a timer takes and measures nothing."""

    def start(self, barrier: bool = False) -> None:
        """Do nothing."""

    def stop(self, barrier: bool = False) -> None:
        """Do nothing."""

    def reset(self) -> None:
        """Do nothing."""

    def elapsed(self, reset: bool = True, barrier: bool = False) -> float:
        """No time."""
        return 0.0


def no_timers(name: str, log_level: int | None = None) -> DummyTimer:
    """A timer for that name."""
    return DummyTimer()
