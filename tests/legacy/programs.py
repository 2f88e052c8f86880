"""Programs that run in a process of their own."""

from __future__ import annotations

import importlib
import runpy
import warnings
from typing import Any

import mcore_compat
from mcore_compat import legacy


def curve(script: str, era: str | None) -> list[list[float]]:
    """Train with the framework in that file: of an era, or rewritten for the stable API."""
    warnings.simplefilter("ignore")
    if era:
        legacy.install(era)
    else:
        mcore_compat.prepare()
    found: list[list[float]] = runpy.run_path(script)["main"]()
    return found


def imports(era: str, names: list[str]) -> dict[str, str]:
    """Import ``module:name`` for each; returns what came, or the error."""
    warnings.simplefilter("ignore")
    legacy.install(era)
    return {name: _imported(name) for name in names}


def _imported(place: str) -> str:
    module, _, name = place.partition(":")
    try:
        value: Any = getattr(importlib.import_module(module), name)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return str(getattr(value, "__module__", ""))


def warned() -> list[str]:
    """Use names of the era twice each; returns the warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        legacy.install("0.4")
        for _ in range(2):
            from megatron.timers import DummyTimer
            from megatron.utils import print_rank_0

            assert DummyTimer
            print_rank_0("twice")
    return [str(warning.message) for warning in caught if warning.category is legacy.LegacyUse]


def taken_back() -> dict[str, bool]:
    """Install and uninstall; compares what is there with what was there before."""
    warnings.simplefilter("ignore")
    mcore_compat.prepare()
    places = {
        "megatron.core.utils:get_model_config",
        "megatron.core.parallel_state:initialize_model_parallel",
        "megatron.core.pipeline_parallel:get_forward_backward_func",
        "megatron.core.distributed:DistributedDataParallel.__init__",
        "megatron.core.distributed:DistributedDataParallel.zero_grad_buffer",
    }
    before = {place: _value(place) for place in places}
    legacy.install("0.4")
    changed = {place for place in places if _value(place) is not before[place]}
    legacy.uninstall()
    same = all(_value(place) is before[place] for place in places)
    mcore_compat.init_parallel()
    mcore_compat.seed(1)
    config = mcore_compat.transformer_config(num_layers=1, hidden_size=8, num_attention_heads=1)
    chunks = mcore_compat.gpt_model(config, vocab_size=8, max_sequence_length=4)
    wrapped = mcore_compat.wrap_data_parallel(chunks, config)
    return {"changed": len(changed) >= 3, "same": same, "wraps": len(wrapped) == 1, "absent": _absent()}


def _value(place: str) -> Any:
    module, _, names = place.partition(":")
    value: Any = importlib.import_module(module)
    for name in names.split("."):
        value = vars(value)[name]
    return value


def _absent() -> bool:
    try:
        importlib.import_module("megatron.timers")
    except ModuleNotFoundError:
        return True
    return False
