"""What a JUnit report of pytest says."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

WORSE = ("passed", "skipped", "failed")


@dataclass
class Tests:
    """Outcomes of a run.

    Attributes:
        outcome: Test to ``passed``, ``skipped`` or ``failed``; one that failed and then broke in its tear-down is one.
        reasons: Skip reason to how many tests gave it.
        failures: ``test: first line of the error``.
        properties: What tests recorded with ``record_property``.
    """

    outcome: dict[str, str] = field(default_factory=dict)
    reasons: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    properties: dict[str, str] = field(default_factory=dict)

    @property
    def counts(self) -> Counter[str]:
        """How many tests have each outcome."""
        return Counter(self.outcome.values())


def read_report(path: Path) -> Tests:
    """Read a report that ``pytest --junitxml`` wrote."""
    tests = Tests()
    for case in ElementTree.parse(path).iter("testcase"):
        _add(tests, f"{case.get('classname')}::{case.get('name')}", case)
    return tests


def _add(tests: Tests, name: str, case: ElementTree.Element) -> None:
    found = "passed"
    for child in case:
        message = (child.get("message") or "").strip()
        if child.tag in ("failure", "error"):
            found = "failed"
            tests.failures.append(f"{name}: {(message.splitlines() or [''])[0]}")
        elif child.tag == "skipped":
            found = max(found, "skipped", key=WORSE.index)
            tests.reasons[message] += 1
        elif child.tag == "properties":
            tests.properties.update({item.get("name", ""): item.get("value", "") for item in child})
    tests.outcome[name] = max(tests.outcome.get(name, "passed"), found, key=WORSE.index)
