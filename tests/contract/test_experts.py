"""A mixture of experts against plain torch, all on one rank and divided over two."""

from __future__ import annotations

import pytest
from packaging.version import Version

from tests.contract.checks import equals_reference
from tests.contract.conftest import Found

SECTIONS = {1: "experts.one_process", 2: "experts.two_ranks"}
# From 0.8.0 on, the optimizers of experts and of all else share one norm.
APART = {"plain": "the gradient norm of experts on several ranks", "clipped": "clip_grad over experts"}


@pytest.mark.parametrize("case", ["plain", "distributed", "clipped"])
@pytest.mark.parametrize("nproc", SECTIONS)
def test_experts_train_as_in_plain_torch_or_are_refused(found: Found, release: str, nproc: int, case: str) -> None:
    refused = what_is_refused(Version(release), nproc, case)
    for rank in found(release, nproc, SECTIONS[nproc]):
        if refused:
            assert rank[case]["error"].startswith("FeatureUnavailable: ")
            assert refused in rank[case]["error"]
        else:
            equals_reference(rank[case])


def what_is_refused(release: Version, nproc: int, case: str) -> str:
    if release < Version("0.5.0"):
        return "moe_router"  # one expert per token, chosen by Sinkhorn's algorithm, and no setting for it
    if nproc == 2 and release < Version("0.6.0"):
        return "expert parallelism with the wheel alone"
    return APART.get(case, "") if nproc == 2 and release < Version("0.8.0") else ""
