"""Functions of ``parallel_state`` that were renamed or dropped."""

from __future__ import annotations

from mcore_compat.errors import ConfigError
from mcore_compat.seams.parallel import groups

__all__ = ["expert_data_parallel_group", "expert_data_parallel_rank", "is_unitialized", "no_split"]


def expert_data_parallel_group(*unused: object, **also_unused: object) -> object:
    """The group over which gradients of experts are averaged."""
    return groups().expert_dp.handle


def expert_data_parallel_rank() -> int:
    """This rank in that group."""
    return groups().expert_dp.rank


def is_unitialized() -> bool:
    """Whether there are no groups yet."""
    try:
        groups()
    except ConfigError:
        return True
    return False


def no_split(rank: int | None = None) -> None:
    """There is no split rank: encoder and decoder are not on separate stages."""
