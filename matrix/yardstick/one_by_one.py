"""A pytest plugin: every test in a forked process of its own, all ranks at the same test, each outcome on disk at once.

Tests that were written for eight GPUs hang, or leave a rank behind, when there are fewer. Here that costs one test.
``$ONE_BY_ONE`` names the folder of the outcomes; a second run goes on where the first one was stopped.
"""

from __future__ import annotations

import itertools
import json
import os
import pickle
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

FOLDER = Path(os.environ["ONE_BY_ONE"])
RANK, RANKS = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
SECONDS = float(os.environ.get("ONE_BY_ONE_SECONDS", "60"))
WORSE = ("passed", "skipped", "failed", "hung")
_numbers = itertools.count(1)


def outcomes(rank: int) -> dict[str, dict[str, str]]:
    """What is known of that rank: test to its outcome and the last line of its error."""
    path = FOLDER / f"rank{rank}.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return {row["test"]: row for row in rows}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out what every rank has done."""
    done = set.intersection(*(set(outcomes(rank)) for rank in range(RANKS)))
    items[:] = [item for item in items if item.nodeid not in done]


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """A file that cannot be imported is one failure."""
    if report.failed:
        _write(report.nodeid, "failed", _reason(str(report.longrepr)))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> bool:
    """Run one test."""
    _meet(next(_numbers))
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    reports = list(_in_child(item))
    worst = max(reports, key=lambda report: WORSE.index(report["outcome"]), default={"outcome": "hung", "why": ""})
    if len(reports) < 3 and worst["outcome"] == "passed":
        worst = {"outcome": "hung", "why": ""}
    _write(item.nodeid, worst["outcome"], worst["why"])
    return True


def _in_child(item: pytest.Item) -> Iterator[dict[str, str]]:
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(reader)
        os.setpgid(0, 0)
        reports = runtestprotocol(item, log=False)
        with os.fdopen(writer, "wb") as pipe:
            pickle.dump([_plain(report) for report in reports], pipe)
        os._exit(0)
    os.close(writer)
    signal.signal(signal.SIGALRM, lambda *_: _kill(child))
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    with os.fdopen(reader, "rb") as pipe:
        written = pipe.read()
    signal.setitimer(signal.ITIMER_REAL, 0)
    _kill(child)
    os.waitpid(child, 0)
    yield from pickle.loads(written) if written else ()


def _kill(child: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)


def _plain(report: Any) -> dict[str, str]:
    skipped = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
    return {"outcome": report.outcome, "why": skipped or _reason(report.longreprtext)}


def _reason(text: str) -> str:
    errors = [line[1:].strip() for line in text.splitlines() if line.startswith("E ")]
    where = [line for line in text.splitlines() if line.rpartition(":")[0].rpartition(":")[2].isdigit()]
    return " | ".join([*errors[:2], *where[-1:]])[:600] or text[-300:]


def _write(test: str, outcome: str, why: str) -> None:
    with (FOLDER / f"rank{RANK}.jsonl").open("a") as file:
        file.write(json.dumps({"test": test, "outcome": outcome, "why": why}) + "\n")


def _meet(number: int) -> None:
    """Wait until every rank has come to its test of that number, or has gone on since."""
    (FOLDER / f"at{RANK}").write_text(str(number))
    while any(_at(rank) < number for rank in range(RANKS)):
        time.sleep(0.01)


def _at(rank: int) -> int:
    path = FOLDER / f"at{rank}"
    return int((path.read_text() if path.exists() else "") or 0)
