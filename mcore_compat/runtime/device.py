"""The one place that knows which device this process prepared for."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal

from mcore_compat.errors import EnvironmentMismatch

if TYPE_CHECKING:
    import torch

DeviceKind = Literal["cpu", "cuda"]
_chosen: DeviceKind | None = None


def choose(kind: DeviceKind | None) -> None:
    """Set (or with ``None`` forget) the device; only ``prepare()`` and ``restore()`` call this."""
    global _chosen
    _chosen = kind


def device() -> torch.device:
    """Where tensors of this process live.

    Raises:
        EnvironmentMismatch: ``prepare()`` has not been called.
    """
    import torch

    if _chosen is None:
        raise EnvironmentMismatch("no device has been chosen in this process", hint="call mcore_compat.prepare() first")
    if _chosen == "cpu":
        return torch.device("cpu")
    return torch.device("cuda", torch.cuda.current_device())


def is_host() -> bool:
    """Whether the CPU answers Megatron's CUDA calls in this process."""
    return _chosen == "cpu"


def backend() -> str:
    """The ``torch.distributed`` backend that serves this device."""
    return "gloo" if device().type == "cpu" else "nccl"


def bind_device() -> None:
    """On a GPU, make this process use the one of its local rank."""
    import torch

    if _chosen == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
