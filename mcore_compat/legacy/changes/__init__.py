"""What is changed in the Megatron that is there, so that calls of an era keep their shape and their meaning."""

from mcore_compat.legacy.changes import config, cross_entropy, data_parallel, parallel_state, process_groups, schedules
from mcore_compat.legacy.changes import optimizer as core_optimizer
from mcore_compat.legacy.changes._change import Change

CHANGES: tuple[Change, ...] = (
    *config.CHANGES,
    *parallel_state.CHANGES,
    *data_parallel.CHANGES,
    *process_groups.CHANGES,
    *schedules.CHANGES,
    *cross_entropy.CHANGES,
    *core_optimizer.CHANGES,
)

__all__ = ["CHANGES", "Change"]
