"""Helpers that make module trees and names that refuse."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, NoReturn

from mcore_compat.errors import FeatureUnavailable


def tree(modules: Mapping[str, Mapping[str, object]]) -> dict[str, ModuleType]:
    """Make modules from dotted names (parents first) and their attributes, and link each to its parent."""
    made: dict[str, ModuleType] = {}
    for name, attributes in modules.items():
        module = ModuleType(name, "Stand-in of mcore_compat for an absent package.")
        module.__path__ = []
        vars(module).update(attributes)
        parent, _, leaf = name.rpartition(".")
        if parent:
            setattr(made[parent], leaf, module)
        made[name] = module
    return made


def refuse(name: str, package: str) -> Callable[..., NoReturn]:
    """A function that raises :class:`FeatureUnavailable` naming the absent package."""

    def refused(*args: object, **kwargs: object) -> NoReturn:
        raise FeatureUnavailable(f"{name} needs {package}, which is not installed", hint=f"install {package}")

    refused.__name__ = name
    return refused


def refusing_class(name: str, package: str, base: type[Any] = object) -> type[Any]:
    """A class that can be subclassed and tested against, and raises when constructed."""
    return type(name, (base,), {"__init__": refuse(name, package), "__module__": __name__})
