"""Case C04: actor and reference before any update agree to the last bit, or the cause is named."""

from __future__ import annotations

import pytest

from tests.contract.one_process import checks

# Pair -> cause, what the detail names, and bounds of the largest difference in nats.
FAILED = {
    "c": ("parameter precision", ["torch.bfloat16", "torch.float32"], (0.03, 0.5)),
    "d": ("logit precision", ["torch.float32", "torch.bfloat16"], (1e-3, 0.1)),
    "e": ("weights differ", ["embedding.word_embeddings.weight"], (3.0, 20.0)),
}


@pytest.mark.parametrize("pair", ["a", "b"])
def test_equal_policies_differ_by_exactly_nothing(release: str, pair: str) -> None:
    found = checks(release)["parity"][pair]
    assert found["passed"]
    assert found["mean_difference"] == found["largest_difference"] == 0.0
    assert found["cause"] == found["error"] == ""


@pytest.mark.parametrize("pair", FAILED)
def test_unequal_policies_fail_with_their_cause(release: str, pair: str) -> None:
    found = checks(release)["parity"][pair]
    cause, named, (least, most) = FAILED[pair]
    assert not found["passed"]
    assert found["cause"] == cause
    assert least < found["largest_difference"] < most
    assert all(word in found["detail"] for word in named), found["detail"]
    assert cause in found["error"]
