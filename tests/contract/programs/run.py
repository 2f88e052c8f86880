"""Runs many checks in one start of the ranks: importing torch and Megatron takes longer than all of them."""

from __future__ import annotations

import importlib
import os
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

import mcore_compat
from tests.contract.programs.folders import llama_folder, normal_weights
from tests.contract.programs.t0 import VOCABULARY, reference_steps


def sections(names: list[str]) -> dict[str, Any]:
    """Call functions by name.

    Args:
        names: ``module.function`` below this package; each is called with the reference steps and a language model's
            folder of this rank, whose parent all ranks share.

    Returns:
        For each name ``result`` and ``seconds``, or ``error`` with the traceback.
    """
    warnings.simplefilter("ignore")
    mcore_compat.prepare("cpu")
    steps = reference_steps()
    folder = Path(f"llama-{os.environ['RANK']}").absolute()
    llama_folder(folder, normal_weights(0.02, seed=1), vocab_size=VOCABULARY)
    return {name: _attempt(_function(name), steps, folder) for name in names}


def _function(name: str) -> Any:
    module, function = name.split(".")
    return getattr(importlib.import_module(f"tests.contract.programs.{module}"), function)


def _attempt(function: Any, steps: dict[str, Any], folder: Path) -> dict[str, Any]:
    started = time.monotonic()
    try:
        result = function(steps, folder)
    except Exception as error:  # the other sections still have something to say, unless a peer waits for this rank
        traceback.print_exc()
        return {"error": f"{error!r}\n{traceback.format_exc()}"}
    return {"result": result, "seconds": time.monotonic() - started}
