"""Checkpoints on every release; other layouts, other releases and new processes are in tests/checkpoint."""

from __future__ import annotations

import pytest

from tests.contract.conftest import Found


@pytest.mark.parametrize("nproc", [1, 2])
@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_resumed_models_go_on_bit_for_bit(found: Found, release: str, nproc: int, precision: str) -> None:
    for rank in found(release, nproc, "checkpoints.resume"):
        resume = rank[precision]
        assert resume["loaded"] == []
        assert resume["next step"] == []
        assert resume["compared"] > 100
        assert resume["schedules"] == [3, 3]
        assert resume["steps"] == [3, 3] or precision == "fp16"  # which counts no step that overflowed
        assert (resume["restored"], resume["release"], resume["same draw"]) == (2, True, True)
