"""Case C01 and its siblings: a step that cannot reach the weights says so."""

from __future__ import annotations

import pytest

from mcore_compat.matrix.table import release as row
from tests.contract.conftest import Found

WAYS = [(precision, kind) for precision in ("fp32", "bf16") for kind in ("distributed", "plain")]


@pytest.mark.parametrize(("precision", "kind"), WAYS)
def test_parameters_bound_to_another_buffer(found: Found, release: str, precision: str, kind: str) -> None:
    steps = found(release, 1, "guards.rebound")[0]
    outcome = steps[f"{precision} {kind} bound_to_own_buffer"]
    if kind == "distributed" and row(release).expect["flat_buffers"] == "lists":
        assert outcome["error"] == "StaleParameter", outcome
        assert outcome["steps"] == 0
        for words in ("27 parameters, first decoder.", "is not the flat buffer", "found [0x", "expected [0x"):
            assert words in outcome["text"]
    else:
        assert outcome == steps[f"{precision} {kind} untouched"]
        assert outcome["changed"] == outcome["parameters"] == 27


@pytest.mark.parametrize(("precision", "kind"), WAYS)
def test_memory_buffers_are_what_such_a_framework_needs(found: Found, release: str, precision: str, kind: str) -> None:
    steps = found(release, 1, "guards.rebound")[0]
    assert steps[f"{precision} {kind} bound_to_memory_buffers"] == steps[f"{precision} {kind} untouched"]
    assert steps[f"{precision} {kind} untouched"]["changed"] == 27


def test_a_group_that_does_not_change(found: Found, release: str) -> None:
    said = found(release, 1, "guards.frozen")[0]
    assert said["fine"] == said["rate zero"] == said["no gradients"] == ""
    assert said["other tensors"].startswith("FrozenUpdate: 1 parameter groups did not change")
    assert "learning rate is 0.01" in said["other tensors"]
