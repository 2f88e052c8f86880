"""Case C04: actor and reference before any update agree to the last bit, or the cause is named."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.conftest import Found

# Pair -> cause, what the detail names, and bounds of the largest difference in nats.
FAILED = {
    "c": ("parameter precision", ["torch.bfloat16", "torch.float32"], (0.03, 0.5)),
    "d": ("logit precision", ["torch.float32", "torch.bfloat16"], (1e-3, 0.1)),
    "e": ("weights differ", ["embedding.word_embeddings.weight"], (3.0, 20.0)),
}


@pytest.fixture
def result(found: Found, release: str) -> dict[str, Any]:
    (result,) = found(release, 1, "parity.parity")
    return dict(result)


@pytest.mark.parametrize("pair", ["a", "b"])
def test_equal_policies_differ_by_exactly_nothing(result: dict[str, Any], pair: str) -> None:
    verdict = result[pair]
    assert verdict["passed"]
    assert verdict["mean_difference"] == verdict["largest_difference"] == 0.0
    assert verdict["cause"] == verdict["error"] == ""


@pytest.mark.parametrize("pair", FAILED)
def test_unequal_policies_fail_with_their_cause(result: dict[str, Any], pair: str) -> None:
    verdict = result[pair]
    cause, named, (least, most) = FAILED[pair]
    assert not verdict["passed"]
    assert verdict["cause"] == cause
    assert least < verdict["largest_difference"] < most
    assert all(word in verdict["detail"] for word in named), verdict["detail"]
    assert cause in verdict["error"]
