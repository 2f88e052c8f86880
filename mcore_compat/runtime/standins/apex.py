"""``apex``: its optimizers by torch's, and the applier of the multi-tensor kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

from .build import tree

if TYPE_CHECKING:
    import torch

CHUNK_SIZE = 2048 * 32


def multi_tensor_applier(
    kernel: Callable[..., Any], overflow: torch.Tensor, lists: Sequence[Sequence[torch.Tensor]], *args: object
) -> Any:
    """Call a kernel of ``amp_C`` with the chunk size in front."""
    return kernel(CHUNK_SIZE, overflow, lists, *args)


def build() -> dict[str, ModuleType]:
    """Make ``apex.optimizers`` and ``apex.multi_tensor_apply``."""
    from mcore_compat.runtime.optimizers import FusedAdam, FusedSGD

    return tree(
        {
            "apex": {},
            "apex.multi_tensor_apply": {"multi_tensor_applier": multi_tensor_applier},
            "apex.optimizers": {"FusedAdam": FusedAdam, "FusedSGD": FusedSGD},
        }
    )
