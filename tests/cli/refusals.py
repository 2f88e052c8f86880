"""Runs the command on one bad input after the other, in one start of the ranks."""

from __future__ import annotations

import io
import traceback
import warnings
from contextlib import redirect_stderr, redirect_stdout
from typing import Any

import mcore_compat
from mcore_compat.runtime import report


def refuse(config: str, cases: dict[str, list[str]]) -> dict[str, dict[str, Any]]:
    """Exit status and output of ``mcore-compat train`` on each case."""
    warnings.simplefilter("ignore")
    return {name: _train(config, overrides) for name, overrides in cases.items()}


def _train(config: str, overrides: list[str]) -> dict[str, Any]:
    from mcore_compat.cli._app import app

    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
        try:
            status = app(["train", config, *overrides], standalone_mode=False)
        except Exception:
            status = traceback.format_exc()
    if report() is not None:
        mcore_compat.reset()
    return {"status": status, "stdout": out.getvalue(), "stderr": err.getvalue()}
