"""Where tensors, generators and modules are made and moved: every CUDA device means the CPU."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._device import DeviceContext, _device_constructors

from mcore_compat.runtime.patches import Patch

CPU = torch.device("cpu")
_LIKES = ("empty_like", "full_like", "ones_like", "rand_like", "randint_like", "randn_like", "zeros_like")
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


class HostGenerator(type):
    """Type of the ``torch.Generator`` stand-in: constructs, and recognises, the CPU's generators."""

    host: Any

    def __call__(cls, device: Any = None) -> torch.Generator:
        """Construct on the CPU."""
        return cls.host(device=on_host(device or CPU))  # type: ignore[no-any-return]

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, cls.host)


def _mover(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def move(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if args:
            args = (on_host(args[0]), *args[1:])
        if "device" in kwargs:
            kwargs["device"] = on_host(kwargs["device"])
        return original(self, *args, **kwargs)

    return move


def _context(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def init(self: Any, device: Any) -> None:
        original(self, on_host(device))

    return init


def _data_parallel(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def init(self: Any, module: Any, device_ids: Any = None, output_device: Any = None, *args: Any, **kw: Any) -> None:
        original(self, module, None, None, *args, **kw)

    return init


def _cuda(self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    return self


def _pin_memory(self: torch.Tensor, device: Any = None) -> torch.Tensor:
    return self


def _record_stream(self: torch.Tensor, stream: Any) -> None:
    """Nothing to do: memory of the CPU is not reused behind a stream's back."""


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
    """Patches of everything that takes a device, and of ``histc``."""
    makers = _factories()
    methods = {name: _maker(getattr(torch.Tensor, name)) for name in _MAKERS}
    methods |= {"to": _mover(torch.Tensor.to), "cuda": _cuda, "pin_memory": _pin_memory}
    methods |= {"record_stream": _record_stream}
    generator = HostGenerator("Generator", (), {"host": torch.Generator, "__module__": "torch"})
    wrapped = torch.nn.parallel.DistributedDataParallel
    placed = [
        *((torch, name, made) for name, made in makers.items()),
        *((torch.Tensor, name, made) for name, made in methods.items()),
        (torch, "Generator", generator),
        (torch, "load", _loader(torch.load)),
        (DeviceContext, "__init__", _context(DeviceContext.__init__)),
        (wrapped, "__init__", _data_parallel(wrapped.__init__)),
    ]
    return [
        *(Patch(target, name, value, "a CUDA device means the CPU") for target, name, value in placed),
        *_scriptable(makers),
        Patch(torch, "histc", _histogram(torch.histc), "integers have no CPU kernel"),
    ]


def _factories() -> dict[str, Callable[..., Any]]:
    # Filled now, while it still sees the originals: torch caches this set for its own device contexts.
    constructors = _device_constructors()
    named = ((name, value) for name, value in vars(torch).items() if callable(value))
    return {
        name: _maker(value)
        for name, value in named
        if name in _LIKES or (_hashable(value) and value in constructors and name != "load")
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
