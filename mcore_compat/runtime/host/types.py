"""Tensor types: ``torch.cuda.FloatTensor`` and its text name the CPU's type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from mcore_compat.runtime.patches import Patch

_NAMES = ("BFloat16", "Bool", "Byte", "Char", "Double", "Float", "Half", "Int", "Long", "Short")
_WHY = "tensors carry CUDA's type names, which Megatron compares"


class HostTensorType(type):
    """Type of the ``torch.cuda.*Tensor`` stand-ins: constructs, and recognises, CPU tensors."""

    host: Any

    def __call__(cls, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Construct on the CPU."""
        return cls.host(*args, **kwargs)  # type: ignore[no-any-return]

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, cls.host)

    @property
    def dtype(cls) -> torch.dtype:
        """Element type."""
        return cls.host.dtype  # type: ignore[no-any-return]


def _host_type(name: str) -> HostTensorType:
    space = {"host": getattr(torch, name), "__module__": "torch.cuda"}
    return HostTensorType(name, (), space)


def _typer(original: Callable[..., Any]) -> Callable[..., Any]:
    def type_(self: torch.Tensor, dtype: Any = None, non_blocking: bool = False) -> Any:
        if dtype is None:
            return original(self).replace("torch.", "torch.cuda.", 1)
        if isinstance(dtype, str):
            dtype = dtype.replace("torch.cuda.", "torch.", 1)
        elif isinstance(dtype, HostTensorType):
            dtype = dtype.host
        return original(self, dtype, non_blocking=non_blocking)

    return type_


def patches() -> list[Patch]:
    """Patches of ``torch.cuda.*Tensor`` and ``Tensor.type``."""
    names = [f"{name}Tensor" for name in _NAMES]
    return [
        *(Patch(torch.cuda, name, _host_type(name), _WHY) for name in names if hasattr(torch, name)),
        Patch(torch.Tensor, "type", _typer(torch.Tensor.type), _WHY),
    ]
