"""``torch.cuda`` with one device per local rank, whose streams do nothing and whose generator is the CPU's."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from mcore_compat.runtime.patches import Patch

Device = int | str | torch.device | None


class Event:
    """A point in time; work on the host is done when the call returns."""

    def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> None:
        self._seconds = time.perf_counter()

    def record(self, stream: Stream | None = None) -> None:
        """Take the time."""
        self._seconds = time.perf_counter()

    def query(self) -> bool:
        """True: nothing is pending."""
        return True

    def synchronize(self) -> None:
        """Return at once."""

    def wait(self, stream: Stream | None = None) -> None:
        """Return at once."""

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds from this event to the other."""
        return 1e3 * (end_event._seconds - self._seconds)


class Stream:
    """A queue that is always empty."""

    cuda_stream = 0
    device = torch.device("cpu")

    def __init__(self, device: Device = None, priority: int = 0) -> None:
        self.priority = priority

    def record_event(self, event: Event | None = None) -> Event:
        """Record the event, a new one by default."""
        event = event or Event()
        event.record(self)
        return event

    def query(self) -> bool:
        """True: nothing is pending."""
        return True

    def synchronize(self) -> None:
        """Return at once."""

    def wait_event(self, event: Event) -> None:
        """Return at once."""

    def wait_stream(self, stream: Stream) -> None:
        """Return at once."""


@dataclass(frozen=True)
class Properties:
    """What a device says about itself: as old as bf16 allows, so that nobody asks for fp8."""

    name: str = "CPU, by mcore_compat"
    major: int = 8
    minor: int = 0
    multi_processor_count: int = os.cpu_count() or 1
    total_memory: int = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


class CurrentDevice:
    """The device number in use; also ``torch.cuda.device``, which changes it for a while."""

    number = 0

    def __init__(self, device: Device) -> None:
        self._wanted = _number(device)

    def __enter__(self) -> None:
        self._before = CurrentDevice.number
        CurrentDevice.number = self._wanted

    def __exit__(self, *error: object) -> None:
        CurrentDevice.number = self._before


def _number(device: Any) -> int:
    if type(device) is int:
        return device if device >= 0 else CurrentDevice.number
    index = None if device is None else torch.device(device).index
    return CurrentDevice.number if index is None else index


def _set_device(device: Device) -> None:
    CurrentDevice.number = _number(device)


def _current_device() -> int:
    return CurrentDevice.number


def _device_count() -> int:
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


def _get_rng_states() -> list[torch.Tensor]:
    return [_get_rng_state()] * _device_count()


_PROPERTIES = Properties()
_STREAM = Stream()


def _always(value: Any) -> Callable[..., Any]:
    # A function of its own per name: torch.compile keeps rules per function object.
    def answer(*args: object, **kwargs: object) -> Any:
        return value

    return answer


def _call(function: Callable[[], object], **kwargs: object) -> None:
    function()


def _seed(seed: int) -> None:
    torch.default_generator.manual_seed(int(seed))


def _seed_all(seed: int) -> None:
    _seed(seed)


def _initial_seed() -> int:
    return torch.default_generator.initial_seed()


def _get_rng_state(device: Device = "cuda") -> torch.Tensor:
    return torch.default_generator.get_state()


def _set_rng_state(new_state: torch.Tensor, device: Device = "cuda") -> None:
    torch.default_generator.set_state(new_state)


def _set_rng_states(new_states: Iterable[torch.Tensor]) -> None:
    for state in new_states:
        _set_rng_state(state)


_RANDOM: dict[str, Any] = {
    "get_rng_state": _get_rng_state,
    "get_rng_state_all": _get_rng_states,
    "initial_seed": _initial_seed,
    "manual_seed": _seed,
    "manual_seed_all": _seed_all,
    "set_rng_state": _set_rng_state,
    "set_rng_state_all": _set_rng_states,
}
_DEVICE: dict[str, Any] = {
    "Event": Event,
    "Stream": Stream,
    "_lazy_call": _call,
    "_lazy_init": _always(None),
    "current_device": _current_device,
    "current_stream": _always(_STREAM),
    "default_stream": _always(_STREAM),
    "device": CurrentDevice,
    "device_count": _device_count,
    "get_device_capability": _always((_PROPERTIES.major, _PROPERTIES.minor)),
    "get_device_name": _always(_PROPERTIES.name),
    "get_device_properties": _always(_PROPERTIES),
    "init": _always(None),
    "ipc_collect": _always(None),
    "mem_get_info": _always((_PROPERTIES.total_memory, _PROPERTIES.total_memory)),
    "reset_peak_memory_stats": _always(None),
    "set_device": _set_device,
    "set_stream": _always(None),
    "stream": _always(nullcontext()),
    "synchronize": _always(None),
}
_NVTX: dict[str, Any] = {"mark": _always(None), "range_pop": _always(None), "range_push": _always(None)}


def patches(*, visible: bool) -> list[Patch]:
    """Patches of ``torch.cuda``, ``torch.cuda.random`` and ``torch.cuda.nvtx``.

    Args:
        visible: What ``is_available()`` says. False is the truth where there is no CUDA, and what the caller asked
            for where there is; True lets programs go on that would skip or refuse.
    """
    seen = {"is_available": _always(visible), "default_generators": (torch.default_generator,) * _device_count()}
    tables = (
        (torch.cuda, _DEVICE | seen, "there is no CUDA device"),
        (torch.cuda, _RANDOM, "random numbers come from the CPU's generator"),
        (torch.cuda.random, _RANDOM, "random numbers come from the CPU's generator"),
        (torch.cuda.nvtx, _NVTX, "there is no CUDA profiler"),
    )
    return [Patch(module, name, value, why) for module, table, why in tables for name, value in table.items()]
