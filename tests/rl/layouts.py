"""Trains in several layouts in one start of the ranks, through the command line."""

from __future__ import annotations

import io
import json
import os
import warnings
from contextlib import redirect_stdout
from typing import Any

import mcore_compat


def train_each(config: str, layouts: dict[str, list[str]]) -> dict[str, Any]:
    """Run ``mcore-compat train`` once per layout; on rank 0, the objects that it printed."""
    warnings.simplefilter("ignore")
    return {name: _train(config, overrides) for name, overrides in layouts.items()}


def _train(config: str, overrides: list[str]) -> Any:
    from mcore_compat.cli._app import app

    with redirect_stdout(io.StringIO()) as printed:
        status = app(["train", config, "--json", *overrides], standalone_mode=False)
    assert not status, f"exit status {status}"
    mcore_compat.reset()
    return json.loads(printed.getvalue()) if os.environ["RANK"] == "0" else None
