"""Clipping in one call, as in ``megatron.core.optimizer.clip_grads`` of 0.6 and 0.7."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from mcore_compat.runtime.device import device

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

_Tensors = Sequence[torch.Tensor] | torch.Tensor


def clip_grad_norm_fp32(
    parameters: _Tensors,
    grads_for_norm: _Tensors,
    max_norm: float,
    norm_type: float = 2.0,
    model_parallel_group: ProcessGroup | None = None,
) -> float:
    """Scale gradients so that their global norm is at most ``max_norm``.

    Args:
        parameters: Their gradients are scaled in place.
        grads_for_norm: fp32 gradients that count, none of them twice over all ranks.
        max_norm: The largest norm.
        norm_type: 2, another power, or infinity.
        model_parallel_group: Ranks that hold the rest of the gradients.

    Returns:
        The norm before clipping.
    """
    owners = _listed(parameters)
    norms = [torch.linalg.vector_norm(grad, norm_type) for grad in _listed(grads_for_norm)]
    own = torch.linalg.vector_norm(torch.stack(norms), norm_type) if norms else torch.zeros((), device=device())
    scaled = [owner.grad.detach() for owner in owners if owner.grad is not None]
    norm = _global(own, float(norm_type), model_parallel_group)
    if scaled and norm > max_norm:
        torch._foreach_mul_(scaled, max_norm / (norm + 1e-6))
    return norm


def _global(own: torch.Tensor, norm_type: float, group: ProcessGroup | None) -> float:
    if norm_type == torch.inf:
        dist.all_reduce(own, dist.ReduceOp.MAX, group)
        return float(own)
    power = own**norm_type
    dist.all_reduce(power, group=group)
    return math.pow(float(power), 1.0 / norm_type)


def _listed(tensors: _Tensors) -> list[torch.Tensor]:
    return [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
