"""verl 0.2 was written for Megatron 0.4. Unmodified, it trains on every release, and computes the same."""

from __future__ import annotations

from typing import Any

import pytest

from tests.clients.wheels import client
from tests.launch import run_ranks

ALL = ("0.4.0", "0.6.0", "0.9.0", "0.12.3", "0.16.1", "0.19.2")
ENDS = (ALL[0], ALL[-1])


@pytest.fixture(scope="module")
def results(request: pytest.FixtureRequest) -> dict[str, Any]:
    wheel = str(client("verl", "0.2"))
    releases = ALL if request.config.getoption("--all-releases") else ENDS
    return {release: run_ranks("tests.clients.verl02:update", wheel, release=release)[0] for release in releases}


@pytest.mark.parametrize("role", ["actor", "critic"])
def test_weights_change(results: dict[str, Any], role: str) -> None:
    for release, result in results.items():
        assert result[role]["changed"] == result[role]["all"], release


def test_its_own_buffer_holds_the_parameters(results: dict[str, Any]) -> None:
    assert all(result["actor"]["own"] for result in results.values())


@pytest.mark.parametrize("role", ["actor", "critic"])
def test_metrics_agree(results: dict[str, Any], role: str) -> None:
    first = next(iter(results.values()))[role]
    assert first["metrics"]
    for release, result in results.items():
        assert result[role]["metrics"] == pytest.approx(first["metrics"], abs=1e-4), release
        assert result[role]["weights"] == pytest.approx(first["weights"], rel=1e-4), release
