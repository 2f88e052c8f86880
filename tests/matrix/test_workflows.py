"""Workflows and actions that other projects call, against their documentation."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from mcore_compat.matrix.table import releases

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "matrix" / "README.md").read_text(encoding="utf-8")
CALLED = {
    "framework.yml": ROOT / ".github" / "workflows" / "framework.yml",
    "matrix-exec": ROOT / ".github" / "actions" / "matrix-exec" / "action.yml",
}
FILES = sorted(ROOT.glob(".github/**/*.yml"))


def load(path: Path) -> dict[Any, Any]:
    return yaml.safe_load(path.read_text(encoding="utf-8"))  # type: ignore[no-any-return]


def inputs(name: str) -> dict[str, dict[str, Any]]:
    document = load(CALLED[name])
    # YAML 1.1 reads the key "on" as a truth value.
    return document[True]["workflow_call"]["inputs"] if True in document else document["inputs"]  # type: ignore[no-any-return]


def examples(node: Any) -> list[dict[str, Any]]:
    """Every mapping below ``node`` that calls something of this repository."""
    if isinstance(node, list):
        return [call for item in node for call in examples(item)]
    if not isinstance(node, dict):
        return []
    own = [node] if "mcore-compat/.github" in str(node.get("uses")) else []
    return own + [call for value in node.values() for call in examples(value)]


def documented() -> dict[str, dict[str, Any]]:
    calls = [call for text in re.findall(r"```yaml\n(.*?)```", README, re.S) for call in examples(yaml.safe_load(text))]
    return {re.split(r"[/@]", call["uses"])[-2]: call["with"] for call in calls}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_parses_and_pins_its_actions(path: Path) -> None:
    assert load(path)
    assert all("@" in used for used in re.findall(r"uses: (\S+)", path.read_text(encoding="utf-8")))


@pytest.mark.parametrize("name", CALLED)
def test_example_gives_what_is_asked_and_nothing_else(name: str) -> None:
    given = documented()[name]
    known = inputs(name)
    assert set(given) <= set(known)
    assert {key for key, value in known.items() if value.get("required")} <= set(given)


@pytest.mark.parametrize("name", CALLED)
def test_every_input_is_documented_and_used(name: str) -> None:
    text = CALLED[name].read_text(encoding="utf-8")
    for key in inputs(name):
        assert f"| `{key}` |" in README
        assert f"inputs.{key}" in text


def test_example_names_releases_of_the_table() -> None:
    table = {row.version for row in releases()}
    given = documented()
    assert set(json.loads(given["framework.yml"]["releases"])) <= table
    assert given["matrix-exec"]["release"] in table | {"${{ matrix.release }}"}


def test_inputs_never_become_code() -> None:
    for path in CALLED.values():
        assert not re.findall(r"run: .*\$\{\{", path.read_text(encoding="utf-8"))
