"""Process groups: made by ``init_parallel``, asked for by the era's names."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator
from typing import Any

from mcore_compat.audit.shapes import SIZES
from mcore_compat.detect import Facts
from mcore_compat.legacy.changes._change import Change, always, module
from mcore_compat.legacy.warn import told
from mcore_compat.runtime.patches import Patch
from mcore_compat.seams.parallel import init_parallel

_HOME = "megatron.core.parallel_state"
# In the order in which programs of the era may pass them.
_PLACES = (
    "tensor_model_parallel_size",
    "pipeline_model_parallel_size",
    "virtual_pipeline_model_parallel_size",
    "pipeline_model_parallel_split_rank",
    "use_sharp",
    "context_parallel_size",
    "expert_model_parallel_size",
    "nccl_communicator_config_path",
)
_VIRTUAL = ("is_pipeline_first_stage", "is_pipeline_last_stage", "is_rank_in_embedding_group")


def _initialize(attributes: tuple[str, ...]) -> Iterator[Patch]:
    original = module(_HOME).initialize_model_parallel
    inside = False

    @functools.wraps(original)
    def initialize_model_parallel(*args: Any, **keywords: Any) -> None:
        nonlocal inside
        if inside:  # init_parallel itself calls
            original(*args, **keywords)
            return
        told("initialize_model_parallel", "mcore_compat.init_parallel(tp=, pp=, vpp=, cp=, ep=)")
        asked = dict(zip(_PLACES, args, strict=False)) | keywords
        inside = True
        try:
            init_parallel(**{SIZES.get(name, name): value for name, value in asked.items()})
        finally:
            inside = False

    yield Patch(module(_HOME), "initialize_model_parallel", initialize_model_parallel, "the library knows the groups")


def _needs_stage(facts: Facts) -> bool:
    return "vp_stage" in (facts.parameters(f"{_HOME}:is_pipeline_first_stage") or ())


def _stages(attributes: tuple[str, ...]) -> Iterator[Patch]:
    state = module(_HOME)
    for name in _VIRTUAL:
        original = getattr(state, name)
        if "vp_stage" in inspect.signature(original).parameters:
            yield Patch(state, name, _by_global_rank(original, state), "the era keeps the chunk in a global")


def _by_global_rank(original: Any, state: Any) -> Any:
    @functools.wraps(original)
    def asked(ignore_virtual: bool | None = None, vp_stage: int | None = None) -> Any:
        if vp_stage is None and not ignore_virtual:
            vp_stage = state.get_virtual_pipeline_model_parallel_rank()
        ignore = ignore_virtual if ignore_virtual is not None else vp_stage is None
        return original(ignore_virtual=ignore, vp_stage=vp_stage)

    return asked


CHANGES = (
    Change("initialize_model_parallel tells mcore_compat the layout", "", always, _initialize),
    Change("pipeline stages are asked for with the chunk of the global rank", "0.12.3", _needs_stage, _stages),
)
