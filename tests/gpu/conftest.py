"""Everything here needs a GPU; where there is none, each test says so."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _cuda() -> None:
    import torch

    if not torch.cuda.is_available():
        pytest.skip("no CUDA device on this machine")
