"""``triton``: kernels decorate at import and are launched, if ever, on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, NoReturn

from .build import refuse, refusing_class, tree


class Kernel:
    """A decorated kernel; ``kernel[grid]`` and ``kernel()`` refuse."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.refuse = refuse(function.__name__, "triton")

    def __getitem__(self, grid: object) -> NoReturn:
        self.refuse()

    def __call__(self, *args: object, **kwargs: object) -> NoReturn:
        """Refuse."""
        self.refuse()


def jit(function: Callable[..., Any] | None = None, **options: object) -> Any:
    """Decorate a kernel, with or without options."""
    return jit if function is None else Kernel(function)


def tuned(*args: object, **options: object) -> Callable[[Kernel], Kernel]:
    """Decorate a kernel with tuning choices, which nothing here will need."""
    return lambda kernel: kernel


def build() -> dict[str, ModuleType]:
    """Make ``triton`` and ``triton.language``."""
    names = {
        "Config": lambda *args, **options: None,
        "autotune": tuned,
        "heuristics": tuned,
        "jit": jit,
        "cdiv": lambda total, block: -(-total // block),
        "next_power_of_2": lambda value: 1 << max(0, value - 1).bit_length(),
    }
    language = {name: refusing_class(name, "triton") for name in ("constexpr", "dtype", "tensor")}
    return tree({"triton": names, "triton.language": language})
