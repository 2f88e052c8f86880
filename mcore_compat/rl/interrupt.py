"""Ending a run on Ctrl-C, on SIGTERM, and when another rank is gone."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from torch.distributed import DistError

from mcore_compat.errors import PeerLost

# What gloo writes when the other end of a connection is gone or silent; NCCL and the store raise DistError.
_LOST_CONNECTION = (
    "connection closed by peer",
    "connection reset by peer",
    "connection refused",
    "broken pipe",
    "socket closed",
    "timed out waiting",
    "application timeout",
)
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopRequest:
    """Whether somebody asked the run to end; the step in flight is finished first.

    Args:
        announce: Say on stderr that the request was heard.
    """

    def __init__(self, *, announce: bool = False) -> None:
        self.requested = False
        self._announce = announce

    def ask(self, number: int, _frame: FrameType | None) -> None:
        """Signal handler. A second Ctrl-C ends the process at once."""
        if self.requested and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.requested = True
        if self._announce:
            # Not print: the signal may have interrupted one.
            os.write(sys.stderr.fileno(), b"stopping after the step in flight (Ctrl-C again: at once)\n")


@contextmanager
def stop_on_signal(*, announce: bool) -> Iterator[StopRequest]:
    """Turn SIGINT and SIGTERM into a request to stop; the handlers before are put back afterwards.

    Args:
        announce: Say on stderr that the request was heard.
    """
    stop = StopRequest(announce=announce)
    before = {number: signal.signal(number, stop.ask) for number in _SIGNALS}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def peer_loss() -> Iterator[None]:
    """Raise :class:`PeerLost` in place of the communication library's error about a lost connection."""
    try:
        yield
    except RuntimeError as error:
        if not _is_lost_connection(error):
            raise
        raise PeerLost(
            f"Another rank stopped while this one was waiting for it ({' '.join(str(error).split())[:200]})",
            hint="look for the first error of another rank; the run folder is complete up to its last step",
        ) from error


def _is_lost_connection(error: RuntimeError) -> bool:
    if isinstance(error, DistError):
        return True
    text = str(error).lower()
    return any(fragment in text for fragment in _LOST_CONNECTION)
