"""One pytest in a process of its own, and the cell that comes of it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from mcore_compat.matrix.cells import Cell
from mcore_compat.matrix.junit import Tests, read_report

# What a test calls a curve that it hands to the runner with record_property.
CURVE = "curve:"
# pytest stops the ranks of the test in flight before it ends.
_GRACE_SECONDS = 30
_SHOWN_FAILURES = 3
_TAIL_LINES = 5


@dataclass
class Processes:
    """The processes that are running, so that all of them can be stopped."""

    running: set[subprocess.Popen[bytes]] = field(default_factory=set)
    stopped: threading.Event = field(default_factory=threading.Event)

    def test(self, tests: Sequence[str], release: str, *, root: Path, limit: float) -> Cell:
        """Run tests of the checkout ``root`` on one release, for at most ``limit`` seconds."""
        started = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="matrix-") as scratch:
            report, output = Path(scratch, "report.xml"), Path(scratch, "output")
            # The form of report that keeps what tests record, curves among it.
            into = [f"--junitxml={report}", "-o", "junit_family=xunit1"]
            command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *into]
            trouble = self._run([*command, f"--megatron={release}", *tests], root, output, limit)
            cell = _cell(read_report(report) if report.exists() else Tests())
            if trouble:
                cell = _spoiled(cell, trouble, output)
        return replace(cell, seconds=round(time.monotonic() - started, 1))

    def stop(self) -> None:
        """Interrupt all of them, and start no others."""
        self.stopped.set()
        running = list(self.running)
        for process in running:
            process.send_signal(signal.SIGINT)
        for process in running:
            _ended(process)

    def _run(self, command: list[str], cwd: Path, output: Path, limit: float) -> str:
        """What went wrong with the process itself, or nothing."""
        if self.stopped.is_set():
            return "interrupted"
        with output.open("wb") as file:
            # In a session of its own: Ctrl-C reaches it once, from us.
            process = subprocess.Popen(
                command, cwd=cwd, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True
            )
        self.running.add(process)
        if self.stopped.is_set():  # since it was asked above
            process.send_signal(signal.SIGINT)
        try:
            return _wait(process, limit)
        finally:
            self.running.discard(process)


def _wait(process: subprocess.Popen[bytes], limit: float) -> str:
    try:
        status = process.wait(limit)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        _ended(process)
        return f"stopped after {limit:g} s"
    # 1: some tests failed, which the report says better.
    return "" if status in (0, 1) else f"pytest ended with {status}"


def _ended(process: subprocess.Popen[bytes]) -> None:
    """Wait for the end of a process that was asked to stop; kill it if it does not."""
    try:
        process.wait(_GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _cell(tests: Tests) -> Cell:
    passed, failed, skipped = (tests.counts[outcome] for outcome in ("passed", "failed", "skipped"))
    reasons = [f"{count} × {reason}" for reason, count in tests.reasons.most_common()]
    more = [f"and {failed - _SHOWN_FAILURES} more"] if failed > _SHOWN_FAILURES else []
    return Cell(
        "failed" if failed else "passed" if passed else "skipped",
        passed,
        failed,
        skipped,
        reason="; ".join([*tests.failures[:_SHOWN_FAILURES], *more] if failed else reasons),
        series={
            name.removeprefix(CURVE): json.loads(text)
            for name, text in tests.properties.items()
            if name.startswith(CURVE)
        },
    )


def _spoiled(cell: Cell, trouble: str, output: Path) -> Cell:
    """A run that did not end by itself has failed, whatever its report says."""
    said = output.read_text(errors="replace").splitlines()[-_TAIL_LINES:] if output.exists() else []
    return replace(cell, status="failed", reason="; ".join(filter(None, [trouble, cell.reason, *said])))
