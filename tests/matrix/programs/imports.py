"""Which variants fit the imported Megatron: the conditions of the seams, asked of live objects instead of source."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import warnings
from typing import Any

import mcore_compat
from mcore_compat.detect import Facts, find
from mcore_compat.seams._registry import seams


class Imported(Facts):
    """Facts of what is in memory."""

    def defines(self, place: str) -> bool:
        return _object(place) is not None

    def parameters(self, place: str) -> tuple[str, ...] | None:
        found = _object(place)
        if found is None:
            return None
        parameters = inspect.signature(found).parameters.values()
        stars: dict[Any, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
        return tuple(stars.get(parameter.kind, "") + parameter.name for parameter in parameters)

    def source(self, place: str) -> str | None:
        found = _object(place)
        return None if found is None else inspect.getsource(found)


def fitting() -> dict[str, list[str]]:
    """Seam to the variants that fit, after each seam has bound and verified its own choice."""
    warnings.simplefilter("ignore")
    mcore_compat.prepare("cpu")
    facts = Imported(find().root)
    fits = {
        seam.name: [variant.name for variant in seam.variants if not variant.shape.differences(seam.target, facts)]
        for seam in seams()
    }
    for seam in seams():
        seam.bind()
    return fits


def _object(place: str) -> Any:
    module, _, qualname = place.partition(":")
    with contextlib.suppress(ModuleNotFoundError, AttributeError):
        found: Any = importlib.import_module(module)
        for name in qualname.split("."):
            found = getattr(found, name)
        return found
    return None
