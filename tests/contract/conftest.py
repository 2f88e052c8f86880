"""One start of the ranks per release and number of ranks, shared by all tests of the contract."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from tests.conftest import asked_for
from tests.launch import run_ranks

SECTIONS = {
    1: (
        "packages.packages",
        "parity.parity",
        "loading.loading",
        "dropout.dropout",
        "single.splits",
        "single.releases_agree",
        "single.hand_check",
        "single.first_steps",
        "single.step_results",
        "single.settings_of_later_releases",
        "single.refusals",
        "traps.one_process",
        "single.explanation",
        "critics.one_process",
        "training.one_process",
        "experts.one_process",
        "checkpoints.resume",
        "guards.rebound",
        "guards.frozen",
    ),
    2: (
        "layouts.layouts",
        "layouts.data_parallel",
        "layouts.no_sync",
        "layouts.reduction_types",
        "layouts.tensor_parallel",
        "layouts.pipeline",
        "layouts.tied_refusal",
        "layouts.interleaved",
        "layouts.context_parallel",
        "layouts.experts",
        "critics.pipeline",
        "training.two_ranks",
        "experts.two_ranks",
        "providers.one_step",
        "providers.flags",
        "traps.two_ranks",
        "vocabulary.padded_vocabulary",
        "checkpoints.resume",
    ),
    4: ("tied.step", "tied.copies", "tied.interleaved", "tied.experts"),
}
# (release, number of ranks, section) -> what the section returned, per rank.
Found = Callable[[str, int, str], list[Any]]


@pytest.fixture(scope="session")
def found(pytestconfig: pytest.Config) -> Found:
    """Results of the sections; ranks are started once for all of them."""
    everywhere = asked_for(pytestconfig)

    @cache
    def ranks(release: str, nproc: int, names: tuple[str, ...]) -> list[dict[str, Any]]:
        return run_ranks("tests.contract.programs.run:sections", names, release=release, nproc=nproc, timeout=280)

    def section(release: str, nproc: int, name: str) -> list[Any]:
        # A release that only single tests are about does not need all the others.
        names = SECTIONS[nproc] if release in everywhere else (name,)
        outcomes = [rank[name] for rank in ranks(release, nproc, names)]
        failures = [f"rank {rank}: {outcome['error']}" for rank, outcome in enumerate(outcomes) if "error" in outcome]
        assert not failures, "\n".join(failures)
        return [outcome["result"] for outcome in outcomes]

    return section
