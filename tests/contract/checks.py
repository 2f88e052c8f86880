"""What tests of the contract assert about one step."""

from __future__ import annotations

from typing import Any

import pytest


def equals_reference(step: dict[str, Any], *, norm: float = 1e-6, weights: float = 1e-6) -> None:
    """The step is that of plain torch with the whole batch at once, and it moved something."""
    assert step["norm"] == pytest.approx(step["expected norm"], rel=norm)
    assert step["loss"] == pytest.approx(step["expected loss"], rel=1e-6)
    assert step["error"] <= weights
    assert step["update"] > 1e-3
