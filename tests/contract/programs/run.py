"""Runs many checks in one start of the ranks: importing torch and Megatron takes longer than all of them."""

from __future__ import annotations

import importlib
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

import torch

import mcore_compat
from tests.contract.programs.t0 import enter, reference_steps


def sections(names: list[str], reference: str, folder: str) -> dict[str, Any]:
    """Call functions by name.

    Args:
        names: ``module.function`` below this package; each is called with the reference steps and the model folder.
        reference: File that :func:`write_reference` wrote.
        folder: A language model in Hugging Face format.

    Returns:
        For each name ``result`` and ``seconds``, or ``error`` with the traceback.
    """
    warnings.simplefilter("ignore")
    mcore_compat.prepare("cpu")
    steps = torch.load(reference)
    return {name: _attempt(_function(name), steps, Path(folder)) for name in names}


def write_reference(path: str) -> None:
    """Write what all others compare themselves with."""
    mcore_compat.prepare("cpu")
    enter()
    torch.save(reference_steps(), path)


def _function(name: str) -> Any:
    module, function = name.split(".")
    return getattr(importlib.import_module(f"tests.contract.programs.{module}"), function)


def _attempt(function: Any, steps: dict[str, Any], folder: Path) -> dict[str, Any]:
    started = time.monotonic()
    try:
        result = function(steps, folder)
    except Exception:  # the other sections still have something to say, unless a peer waits for this rank
        traceback.print_exc()
        return {"error": traceback.format_exc()}
    return {"result": result, "seconds": time.monotonic() - started}
