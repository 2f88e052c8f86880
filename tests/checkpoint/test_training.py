"""A PPO run on Megatron that was interrupted learns what an uninterrupted one does."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.launch import run_ranks


@pytest.mark.releases("0.16.1")
def test_an_interrupted_run_goes_on_to_the_last_bit(release: str, tmp_path: Path) -> None:
    (found,) = run_ranks("tests.checkpoint.training:interrupted_and_not", str(tmp_path), release=release, timeout=200)
    assert len(found["whole"]) == 3
    assert found["resumed"] == found["whole"]
    assert sorted(path.name for path in (tmp_path / "run" / "checkpoints").iterdir()) == ["latest", "step-2", "step-3"]
