"""``amp_C``: Apex's multi-tensor kernels, with torch's list operations.

Both take (chunk size, overflow flag, lists of tensors, …) as the kernels do. The flag is left alone: no
release reads it after these calls.
"""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING

from .build import tree

if TYPE_CHECKING:
    import torch


def multi_tensor_l2norm(
    chunk_size: int, overflow: torch.Tensor, lists: list[list[torch.Tensor]], per_tensor: bool
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Euclidean norm over all tensors of the only list.

    Returns:
        A [1] fp32 tensor, and with ``per_tensor`` the [N] norms of the N tensors.
    """
    import torch

    (tensors,) = lists
    norms = torch.stack(torch._foreach_norm(tensors)).float()
    return torch.linalg.vector_norm(norms).reshape(1), norms if per_tensor else None


def multi_tensor_scale(chunk_size: int, overflow: torch.Tensor, lists: list[list[torch.Tensor]], scale: float) -> None:
    """Write ``scale`` times the first list into the second, which may be the same tensors."""
    import torch

    sources, targets = lists
    if sources is targets:
        torch._foreach_mul_(targets, scale)
        return
    torch._foreach_copy_(targets, torch._foreach_mul(sources, scale))


def build() -> dict[str, ModuleType]:
    """Make ``amp_C``."""
    names = {"multi_tensor_l2norm": multi_tensor_l2norm, "multi_tensor_scale": multi_tensor_scale}
    return tree({"amp_C": names})
