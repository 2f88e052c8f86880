"""Where tensors are made and moved: every CUDA device means the CPU."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._device import _device_constructors

from mcore_compat.runtime.patches import Patch

CPU = torch.device("cpu")
_MOVERS = ("to",)
_MAKERS = ("new_empty", "new_empty_strided", "new_full", "new_ones", "new_tensor", "new_zeros")


def on_host(place: Any) -> Any:
    """The CPU for a CUDA device in any spelling (index, text, ``torch.device``), anything else unchanged."""
    if isinstance(place, str):
        return CPU if place.startswith("cuda") else place
    if isinstance(place, torch.device):
        return CPU if place.type == "cuda" else place
    return CPU if type(place) is int else place


def _maker(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def make(*args: Any, **kwargs: Any) -> Any:
        if "device" in kwargs:
            kwargs["device"] = on_host(kwargs["device"])
        if kwargs.get("pin_memory"):
            kwargs["pin_memory"] = False
        return original(*args, **kwargs)

    return make


def _mover(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def move(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if args:
            args = (on_host(args[0]), *args[1:])
        if "device" in kwargs:
            kwargs["device"] = on_host(kwargs["device"])
        return original(self, *args, **kwargs)

    return move


def _cuda(self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    return self


def _pin_memory(self: torch.Tensor, device: Any = None) -> torch.Tensor:
    return self


def _loader(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def load(f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
        place = map_location if callable(map_location) or isinstance(map_location, dict) else on_host(map_location)
        return original(f, place or CPU, *args, **kwargs)

    return load


def _histogram(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def histc(input: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        if input.is_floating_point():
            return original(input, *args, **kwargs)  # type: ignore[no-any-return]
        return original(input.double(), *args, **kwargs).to(input.dtype)  # type: ignore[no-any-return]

    return histc


def patches() -> list[Patch]:
    """Patches of factories, of tensor methods that take a device, and of ``torch.load`` and ``histc``."""
    makers = _factories()
    methods = {name: _maker(getattr(torch.Tensor, name)) for name in _MAKERS}
    methods |= {name: _mover(getattr(torch.Tensor, name)) for name in _MOVERS}
    methods |= {"cuda": _cuda, "pin_memory": _pin_memory}
    return [
        *(Patch(torch, name, made, "a CUDA device means the CPU") for name, made in makers.items()),
        *(Patch(torch.Tensor, name, made, "a CUDA device means the CPU") for name, made in methods.items()),
        *_scriptable(makers),
        Patch(torch, "load", _loader(torch.load), "a CUDA device means the CPU"),
        Patch(torch, "histc", _histogram(torch.histc), "integers have no CPU kernel"),
    ]


def _factories() -> dict[str, Callable[..., Any]]:
    # Filled now, while it still sees the originals: torch caches this set for its own device contexts.
    constructors = _device_constructors()
    named = ((name, value) for name, value in vars(torch).items() if callable(value))
    return {
        name: _maker(value) for name, value in named if _hashable(value) and value in constructors and name != "load"
    }


def _hashable(value: Any) -> bool:
    return type(value).__hash__ is not None


def _scriptable(makers: dict[str, Callable[..., Any]]) -> list[Patch]:
    """Tell the TorchScript compiler which operator each wrapped factory is."""
    table = torch.jit._builtins._get_builtin_table()  # type: ignore[no-untyped-call]
    return [
        Patch(table, id(made), table[id(getattr(torch, name))], "torch.jit.script must find the operator")
        for name, made in makers.items()
        if id(getattr(torch, name)) in table
    ]
