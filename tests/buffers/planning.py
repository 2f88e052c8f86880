"""Compares planned layouts with the buffers that one release really builds, for any number of ranks.

torch's fake process group gives any world size in one process; the module has parameters and nothing else.
"""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import mcore_compat
from mcore_compat import DataParallelSettings
from mcore_compat.buffers.plan import Bucket, BufferLayout, ChunkLayout, Parameter, Place, plan_buffers
from mcore_compat.errors import ConfigError
from mcore_compat.matrix.table import at_least
from mcore_compat.seams.flat_buffers import FlatBuffer

DTYPES = ("float32", "bfloat16", "float16")


class Ranks(NamedTuple):
    """A job as one of its ranks sees it, the first release that has it, and later ones that refuse it."""

    world: int
    rank: int = 0
    tp: int = 1
    pp: int = 1
    cp: int = 1
    ep: int = 1
    instances: int = 1
    since: str = "0.4.0"
    refused: tuple[str, ...] = ()


# More elements than the smallest default bucket holds.
LARGE = [Parameter("last", (5,)), Parameter("first", (41_000_000,))]
JOBS = (
    Ranks(1),
    Ranks(2),
    Ranks(3),
    Ranks(7),
    Ranks(12, cp=2),
    Ranks(16, pp=2, rank=15),
    Ranks(24, ep=3),
    Ranks(64, ep=2, tp=2),
    Ranks(64, instances=4, since="0.10.0"),
    Ranks(64, instances=4, ep=2, since="0.10.0", refused=("0.12.0", "0.12.1", "0.12.2", "0.12.3")),
    Ranks(512),
)


def differences(release: str, examples: int) -> dict[str, Any]:
    """Run random cases in every job; returns how many, and how often upstream refused as planned.

    Raises:
        AssertionError: A layout is not the planned one; shows the smallest case that hypothesis found.
    """
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    mcore_compat.prepare("cpu")
    counts = {"cases": 0, "refused": 0, "misplaced": 0}
    jobs = [job for job in JOBS if at_least(release, job.since) and release not in job.refused]
    for job in jobs:
        with job_of(job):
            _check(release, job, -(-examples // len(jobs)), counts)
            if job.world in (2, 512):
                options = DataParallelSettings(overlap_grad_reduce=True, grad_reduce_in_fp32=False)
                assert built(LARGE, options, 0) == planned_by(release, job, LARGE, options, 0)
    return counts


@contextmanager
def job_of(job: Ranks) -> Iterator[None]:
    """Be one rank of a job whose collectives do nothing."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    new_group = dist.new_group

    def fake(ranks: Any = None, **keywords: Any) -> Any:
        return new_group(ranks, backend="fake")

    dist.init_process_group("fake", rank=job.rank, world_size=job.world, store=FakeStore())
    dist.new_group = fake
    try:
        extra = {"num_distributed_optimizer_instances": job.instances} if job.instances > 1 else {}
        mcore_compat.init_parallel(job.tp, job.pp, cp=job.cp, ep=job.ep, **extra)
        yield
    finally:
        dist.new_group = new_group
        mcore_compat.reset()
        dist.destroy_process_group()


def parameters(job: Ranks) -> st.SearchStrategy[list[Parameter]]:
    """Parameters of sizes around the multiples that rules know, of all kinds."""
    sizes = st.one_of(st.integers(1, 700), st.sampled_from((64, 127, 128, 129, 192, 256, 384, 512, 640)))
    flag = st.sampled_from((False, False, False, True))
    one = st.builds(
        Parameter,
        name=st.just(""),
        shape=sizes.flatmap(lambda size: st.sampled_from(((size,), (1, size), (size, 2)))),
        dtype=st.sampled_from(DTYPES),
        tied=flag,
        expert=flag if job.ep > 1 else st.just(False),
        frozen=flag,
    )
    return st.lists(one, min_size=1, max_size=12).map(
        lambda drawn: [Parameter(f"p{index}", *list(vars(p).values())[1:]) for index, p in enumerate(drawn)]
    )


def wrapper_settings(release: str, job: Ranks) -> st.SearchStrategy[DataParallelSettings]:
    """Every option that this release has and that may act on a layout."""
    distributed = st.just(True) if job.instances > 1 else st.sampled_from((True, True, False))
    return st.builds(
        DataParallelSettings,
        use_distributed_optimizer=distributed,
        overlap_grad_reduce=st.sampled_from((True, True, False)),
        grad_reduce_in_fp32=st.booleans(),
        bucket_size=st.one_of(st.none(), st.integers(1, 2000)),
        disable_bucketing=st.sampled_from((False, False, True)),
        num_distributed_optimizer_instances=st.just(job.instances),
        pad_buckets_for_high_nccl_busbw=st.sampled_from((False, False, True))
        if at_least(release, "0.12.0")
        else st.just(False),
    )


def _check(release: str, job: Ranks, examples: int, counts: dict[str, int]) -> None:
    @settings(
        max_examples=examples, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck)
    )
    @given(parameters(job), wrapper_settings(release, job), st.sampled_from((0, 0, 1)))
    def every_layout_is_the_planned_one(drawn: list[Parameter], options: DataParallelSettings, chunk: int) -> None:
        counts["cases"] += 1
        try:
            planned = planned_by(release, job, drawn, options, chunk)
        except ConfigError:
            counts["refused"] += 1
            assert built(drawn, options, chunk) is None, "planned to be refused, but upstream built it"
            return
        counts["misplaced"] += any(buffer.misplaced for buffer in planned.buffers)
        assert built(drawn, options, chunk) == planned
        assert planned_by(None, job, drawn, options, chunk) == planned

    every_layout_is_the_planned_one()


def planned_by(
    release: str | None, job: Ranks, drawn: list[Parameter], options: DataParallelSettings, chunk: int
) -> ChunkLayout:
    """The planner's answer."""
    here = mcore_compat.groups()
    return plan_buffers(
        drawn,
        options,
        dp=here.dp.size,
        cp=job.cp,
        expert_dp=here.expert_dp.size,
        stage=here.pp.rank,
        chunk=chunk,
        release=release,
    )


def config() -> Any:
    """Any config that this job can have."""
    here = mcore_compat.groups()
    experts = {"num_moe_experts": here.ep.size} if here.ep.size > 1 else {}
    sizes: dict[str, Any] = {"num_layers": here.pp.size, "hidden_size": 8, "num_attention_heads": here.tp.size}
    kind = {"add_bias_linear": False, "sequence_parallel": here.tp.size > 1}
    return mcore_compat.transformer_config(**sizes, **experts, **kind)


class Bare(torch.nn.Module):
    """Parameters, registered in order."""

    def __init__(self, drawn: list[Parameter]) -> None:
        super().__init__()
        self.config = config()
        for described in drawn:
            value = torch.zeros(described.shape, dtype=getattr(torch, described.dtype))
            parameter = torch.nn.Parameter(value, requires_grad=not described.frozen)
            if described.tied:
                parameter.shared_embedding = True  # type: ignore[attr-defined]
            if described.expert:
                parameter.allreduce = False  # type: ignore[attr-defined]
            self.register_parameter(described.name, parameter)


def built(drawn: list[Parameter], options: DataParallelSettings, chunk: int) -> ChunkLayout | None:
    """What upstream builds, ``None`` where it refuses."""
    from mcore_compat.seams.data_parallel import seam as wrapper
    from mcore_compat.seams.flat_buffers import seam as flat_buffers

    module = Bare(drawn)
    try:
        wrapped = wrapper.bind()(module, module.config, options, options.disable_bucketing or chunk > 0)
    except AssertionError:
        return None
    names = {parameter: name for name, parameter in module.named_parameters()}
    upstream = _upstream_buffers(wrapped)
    pairs = zip(flat_buffers.bind()(wrapped), upstream, strict=True)
    buffers = [_described(buffer, names, [_unpadded(bucket) for bucket in raw.buckets]) for buffer, raw in pairs]
    held = {place.name for buffer in buffers for place in buffer.places}
    unbuffered = [p.name for p in drawn if not p.frozen and p.name not in held]
    return ChunkLayout(tuple(buffers), tuple(unbuffered))


def _upstream_buffers(wrapped: Any) -> list[Any]:
    if hasattr(wrapped, "grad_buffers"):
        return list(wrapped.grad_buffers.values())
    return [*wrapped.buffers, *wrapped.expert_parallel_buffers]


def _unpadded(bucket: Any) -> int:
    # 0.4.0 does not count; it has no gaps either.
    return int(getattr(bucket, "numel_unpadded", sum(parameter.numel() for parameter in bucket.params)))


def _described(buffer: FlatBuffer, names: dict[torch.nn.Parameter, str], unpadded: list[int]) -> BufferLayout:
    for parameter, (start, _, _) in buffer.places.items():
        assert _offset(parameter.main_grad, buffer.gradients) == start  # type: ignore[attr-defined]
        assert buffer.parameters is None or _offset(parameter.data, buffer.parameters) == start
    places = [Place(names[p], tuple(p.shape), *place) for p, place in buffer.places.items()]
    assert all(place.end - place.start == math.prod(place.shape) for place in places)
    assert buffer.parameters is None or buffer.parameters.shape == buffer.gradients.shape
    assert buffer.gradients.numel() == buffer.buckets[-1][1]
    return BufferLayout(
        None if buffer.parameter_type is None else _name(buffer.parameter_type),
        _name(buffer.gradients.dtype),
        buffer.expert,
        tuple(places),
        tuple(Bucket(*bounds, numel) for bounds, numel in zip(buffer.buckets, unpadded, strict=True)),
    )


def _offset(tensor: torch.Tensor, flat: torch.Tensor) -> int:
    return (tensor.data_ptr() - flat.data_ptr()) // flat.element_size()


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
