"""Runs all tests: side by side, then the benchmarks alone; prints one count of everything as the last line.

``python -m tests.run [PYTEST OPTIONS]`` (``make test ARGS=...``).
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from mcore_compat.matrix.junit import read_report

ROOT = Path(__file__).resolve().parents[1]
# Most tests wait for processes they started.
SIDE_BY_SIDE = ["-n", "2", "--ignore=tests/bench"]
# A ratio of two times means nothing while other tests take turns on the same cores.
ALONE = ["-p", "no:xdist", "tests/bench"]
NOTHING_SELECTED = 5


def main(options: list[str]) -> int:
    """Run both parts with ``options``; return the first exit status that is not 0."""
    parts = [_run([*part, *options]) for part in (SIDE_BY_SIDE, ALONE)]
    total = sum((counts for _, counts in parts), Counter[str]())
    print(f"{total['passed']} passed, {total['failed']} failed, {total['skipped']} skipped", flush=True)
    failures = [status for status, _ in parts if status not in (0, NOTHING_SELECTED)]
    return failures[0] if failures else (0 if total else NOTHING_SELECTED)


def _run(arguments: list[str]) -> tuple[int, Counter[str]]:
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        command = [sys.executable, "-m", "pytest", f"--junitxml={report}", *arguments]
        status = subprocess.run(command, cwd=ROOT, check=False).returncode
        return status, read_report(report).counts if report.exists() else Counter(failed=1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
