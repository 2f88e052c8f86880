"""Collections of process groups: the two arguments of 0.13 and 0.14 as the one of later releases."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

from mcore_compat.detect import Facts
from mcore_compat.legacy.changes._change import Change, module
from mcore_compat.legacy.warn import told
from mcore_compat.runtime.patches import Patch

_DDP = "megatron.core.distributed.distributed_data_parallel"
_OPTIMIZER = "megatron.core.optimizer"
_OLD = ("grad_comm_pgs", "model_comm_pgs")


def _takes_one(facts: Facts) -> bool:
    return "pg_collection" in (facts.parameters(f"{_DDP}:DistributedDataParallel") or ())


def _merging(attributes: tuple[str, ...]) -> Iterator[Patch]:
    wrapper, factory = module(_DDP).DistributedDataParallel, module(_OPTIMIZER)
    for target, name in ((wrapper, "__init__"), (factory, "get_megatron_optimizer")):
        yield Patch(target, name, _merged(getattr(target, name)), "two collections of groups in one")


def _merged(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def call(*args: Any, **keywords: Any) -> Any:
        collections = [keywords.pop(name, None) for name in _OLD]
        if any(collections):
            told("grad_comm_pgs= and model_comm_pgs=", "mcore_compat.groups() has the groups of init_parallel")
            keywords["pg_collection"] = _collection(collections)
        return original(*args, **keywords)

    return call


def _collection(given: list[Any]) -> Any:
    """Groups that neither has are those of parallel_state: later releases ask for more of them."""
    merged = module("megatron.core.process_groups_config").ProcessGroupCollection.use_mpu_process_groups()
    for collection in given:
        vars(merged).update(vars(collection) if collection else {})
    return merged


CHANGES = (Change("grad_comm_pgs and model_comm_pgs are taken together", "0.14.0", _takes_one, _merging),)
