"""Runs all tests: side by side, then the benchmarks alone; prints one count of everything as the last line.

``python -m tests.run [PYTEST OPTIONS]`` (``make test ARGS=...``).
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# Most tests wait for processes they started; a file stays on one worker, with the fixtures its tests share.
SIDE_BY_SIDE = ["-n", "2", "--dist", "loadfile", "--ignore=tests/bench"]
# A ratio of two times means nothing while other tests take turns on the same cores.
ALONE = ["-p", "no:xdist", "tests/bench"]
NOTHING_SELECTED = 5
WORSE = ("passed", "skipped", "failed")


def main(options: list[str]) -> int:
    """Run both parts with ``options``; return the first exit status that is not 0."""
    parts = [_run([*part, *options]) for part in (SIDE_BY_SIDE, ALONE)]
    total = sum((counts for _, counts in parts), Counter[str]())
    print(f"{total['passed']} passed, {total['failed']} failed, {total['skipped']} skipped", flush=True)
    failures = [status for status, _ in parts if status not in (0, NOTHING_SELECTED)]
    return failures[0] if failures else (0 if total else NOTHING_SELECTED)


def count_tests(report: Path) -> Counter[str]:
    """Count the tests of a JUnit report; one that failed and then broke in its tear-down counts once."""
    outcome: dict[tuple[str | None, str | None], str] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        test = case.get("classname"), case.get("name")
        outcome[test] = max(outcome.get(test, "passed"), _outcome(case), key=WORSE.index)
    return Counter(outcome.values())


def _outcome(case: ElementTree.Element) -> str:
    kinds = {child.tag for child in case}
    return "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"


def _run(arguments: list[str]) -> tuple[int, Counter[str]]:
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        command = [sys.executable, "-m", "pytest", f"--junitxml={report}", *arguments]
        status = subprocess.run(command, cwd=ROOT, check=False).returncode
        return status, count_tests(report) if report.exists() else Counter(failed=1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
