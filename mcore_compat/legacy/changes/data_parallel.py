"""The data-parallel wrapper: flat flags, an argument for clearing, and parameters that programs move elsewhere."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator
from typing import Any

import torch.distributed as dist

from mcore_compat.audit.shapes import FLAGS, FLAT_PLACES, GROUPS, REQUIRED_FLAGS
from mcore_compat.contracts import DataParallelSettings
from mcore_compat.detect import Facts
from mcore_compat.errors import FeatureUnavailable
from mcore_compat.legacy import homes
from mcore_compat.legacy.changes._change import Change, always, module
from mcore_compat.legacy.warn import told
from mcore_compat.runtime.patches import Patch
from mcore_compat.seams.data_parallel import wrap_data_parallel
from mcore_compat.seams.parallel import groups

_HOME = "megatron.core.distributed.distributed_data_parallel"
_STABLE = "mcore_compat.wrap_data_parallel([module], config, DataParallelSettings(...))[0]"
# Positions up to 0.5.
_PLACES = (*FLAT_PLACES, "disable_bucketing", "bucket_size")


def _recording(attributes: tuple[str, ...]) -> Iterator[Patch]:
    kind = module(_HOME).DistributedDataParallel
    upstream = kind.__init__

    @functools.wraps(upstream)
    def initialise(self: Any, *args: Any, **keywords: Any) -> None:
        with homes.recorded(self, *args, **keywords):
            upstream(self, *args, **keywords)

    yield Patch(kind, "__init__", initialise, "programs move parameters")


def _flat_flags(attributes: tuple[str, ...]) -> Iterator[Patch]:
    kind = module(_HOME).DistributedDataParallel
    upstream = kind.__init__

    @functools.wraps(upstream)
    def initialise(self: Any, *args: Any, **keywords: Any) -> None:
        flat = _flat(args, keywords)
        if flat is None:
            upstream(self, *args, **keywords)
        else:
            homes.become(self, _build(flat))

    yield Patch(kind, "__init__", initialise, "flat flags")


def _takes_config(facts: Facts) -> bool:
    return "ddp_config" in (facts.parameters(f"{_HOME}:DistributedDataParallel") or ())


def _flat(args: tuple[Any, ...], keywords: dict[str, Any]) -> dict[str, Any] | None:
    """Arguments by name, where this is a call with flat flags."""
    named = dict(zip(_PLACES, args, strict=False)) | keywords
    return named if isinstance(named.get(REQUIRED_FLAGS[0]), bool) else None


def _build(flat: dict[str, Any]) -> Any:
    told("DistributedDataParallel with flat flags", _STABLE)
    if unknown := flat.keys() - {"config", "module", *GROUPS, *FLAGS}:
        raise TypeError(f"DistributedDataParallel got unexpected arguments: {', '.join(sorted(unknown))}")
    _require_own([flat[name] for name in GROUPS if flat.get(name) is not None])
    settings = DataParallelSettings(**{ours: flat[theirs] for theirs, ours in FLAGS.items() if theirs in flat})
    return wrap_data_parallel([flat["module"]], flat["config"], settings)[0]


def _groups(attributes: tuple[str, ...]) -> Iterator[Patch]:
    kind = module(_HOME).DistributedDataParallel
    upstream = kind.__init__

    @functools.wraps(upstream)
    def initialise(self: Any, *args: Any, **keywords: Any) -> None:
        if _flat(args, keywords) is not None:  # of an era before, whose change is below this one
            upstream(self, *args, **keywords)
            return
        given = [value for value in args if isinstance(value, dist.ProcessGroup)]
        given += [keywords.pop(name) for name in GROUPS if keywords.get(name) is not None]
        if given:
            told("DistributedDataParallel(data_parallel_group=)", _STABLE)
            _require_own(given)
        rest = [value for value in args if not isinstance(value, dist.ProcessGroup)]
        upstream(self, *rest, **{name: value for name, value in keywords.items() if name not in GROUPS})

    yield Patch(kind, "__init__", initialise, "groups that the release reads from parallel_state")


def _reads_groups(facts: Facts) -> bool:
    return _takes_config(facts) and "data_parallel_group" not in (
        facts.parameters(f"{_HOME}:DistributedDataParallel") or ()
    )


def _require_own(given: list[Any]) -> None:
    here = groups()
    if any(group not in (here.dp_cp.handle, here.dp.handle, here.expert_dp.handle) for group in given):
        raise FeatureUnavailable(
            "DistributedDataParallel over another group than that of initialize_model_parallel cannot be served",
            hint="pg_collection= of the releases from 0.15 on",
        )


def _clearing(attributes: tuple[str, ...]) -> Iterator[Patch]:
    kind = module(_HOME).DistributedDataParallel
    upstream = kind.zero_grad_buffer
    all_of_it = {"zero_buffer": True} if "zero_buffer" in inspect.signature(upstream).parameters else {}

    @functools.wraps(upstream)
    def zero_grad_buffer(self: Any, zero_buffer: bool = True) -> None:
        told("zero_grad_buffer(zero_buffer=)", "mcore_compat.zero_grad(chunks, optimizer)")
        upstream(self, **all_of_it)

    yield Patch(kind, "zero_grad_buffer", zero_grad_buffer, "no optimizer clears it")


def _no_optimizer_clears(facts: Facts) -> bool:
    """Only the distributed optimizer of the old repository does."""
    return not facts.defines("megatron.optimizer:get_megatron_optimizer")


def _broadcast(attributes: tuple[str, ...]) -> Iterator[Patch]:
    def broadcast_params(self: Any) -> None:
        """Nothing is left to do: ``wrap_data_parallel`` has given all ranks the same weights."""

    kind = module(_HOME).DistributedDataParallel
    yield Patch(kind, "broadcast_params", broadcast_params, "raises AttributeError")


def _broken_broadcast(facts: Facts) -> bool:
    source = facts.source(f"{_HOME}:DistributedDataParallel.broadcast_params") or ""
    constructor = facts.source(f"{_HOME}:DistributedDataParallel.__init__") or ""
    return "group=self.data_parallel_group" in source and "self.data_parallel_group =" not in constructor


CHANGES = (
    Change("parameters that are moved out of the wrapper's buffer are updated where they are", "", always, _recording),
    Change("DistributedDataParallel takes flat flags", "0.6.0", _takes_config, _flat_flags),
    Change("DistributedDataParallel takes a data-parallel group", "0.7.0", _reads_groups, _groups),
    Change("zero_grad_buffer takes zero_buffer and always clears", "0.5.0", _no_optimizer_clears, _clearing),
    Change("broadcast_params does not fail", "0.7.0", _broken_broadcast, _broadcast),
)
