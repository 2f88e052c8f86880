"""Run in a process of their own, with a real Megatron imported."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
from typing import Any

import mcore_compat
from mcore_compat.errors import RuntimeDrift
from mcore_compat.seams._registry import Seam, Shape

STARS: dict[object, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}


def imported(place: str) -> Any:
    module, _, qualname = place.partition(":")
    value: Any = importlib.import_module(module)
    for part in qualname.split("."):
        value = getattr(value, part)
    return value


def parameters(place: str) -> list[str]:
    found = inspect.signature(imported(place)).parameters.values()
    return [STARS.get(each.kind, "") + each.name for each in found if each.name != "self"]


def signatures(places: list[str], config: str) -> dict[str, Any]:
    """Parameters of the imported objects and fields of the imported dataclass."""
    mcore_compat.prepare("cpu")
    return {
        "parameters": {place: parameters(place) for place in places},
        "fields": [field.name for field in dataclasses.fields(imported(config))],
    }


def bind_then_replace() -> dict[str, Any]:
    """Bind a seam as it is, then once more after its target was replaced as a fork might."""
    mcore_compat.prepare("cpu")
    from megatron.core import parallel_state

    seam: Seam[Any] = Seam("groups", target="megatron.core.parallel_state:initialize_model_parallel")

    @seam.variant("sized", since="0.4.0", shape=Shape(accepts={"tensor_model_parallel_size"}))
    def bind() -> Any:
        return parallel_state.initialize_model_parallel

    bound = seam.bind() is parallel_state.initialize_model_parallel
    parallel_state.initialize_model_parallel = lambda sizes: None
    seam.reset()
    try:
        seam.bind()
    except RuntimeDrift as error:
        return {"bound": bound, "drift": str(error)}
    return {"bound": bound, "drift": ""}
