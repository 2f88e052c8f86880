"""``megatron.utils`` of 0.4 and 0.5, ``megatron.training.utils`` later."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from mcore_compat.seams.model import unwrap
from mcore_compat.seams.parallel import groups

__all__ = [
    "average_losses_across_data_parallel_group",
    "is_last_rank",
    "print_rank_0",
    "print_rank_last",
    "unwrap_model",
]


def print_rank_0(message: object) -> None:
    """Print on rank 0."""
    if not dist.is_initialized() or dist.get_rank() == 0:
        print(message, flush=True)


def print_rank_last(message: object) -> None:
    """Print on the last rank."""
    if not dist.is_initialized() or is_last_rank():
        print(message, flush=True)


def is_last_rank() -> bool:
    """Whether this is the last rank of the job."""
    return dist.get_rank() == dist.get_world_size() - 1


def unwrap_model(model: Any, module_instances: tuple[type, ...] | type | None = None) -> Any:
    """The module below its wrappers; a list gives a list.

    Args:
        model: A module or a list of modules.
        module_instances: The wrappers to take off; ``None``: all.
    """
    if module_instances is None:
        return unwrap(model)
    if isinstance(model, list):
        return [unwrap_model(module, module_instances) for module in model]
    wrappers: Any = module_instances
    while isinstance(model, wrappers):
        model = model.module
    return model


def average_losses_across_data_parallel_group(losses: Sequence[torch.Tensor]) -> torch.Tensor:
    """Means over data-parallel ranks: [N] for N scalar losses."""
    group = groups().dp
    averaged = torch.cat([loss.detach().clone().view(1) for loss in losses])
    dist.all_reduce(averaged, group=group.handle)
    return averaged / group.size
