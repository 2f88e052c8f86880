"""Whole buckets of parameters to every rank of a model: one collective per bucket and group.

A parameter that tensor parallelism (or, of an expert, expert parallelism) splits has one *shard* per rank of those
groups; pipeline stages hold different parameters. A bucket is a run of shards of one stage. It travels from that stage
to the others, if there are any, and is then gathered over each group that splits its shards: one all-gather each. All
buckets travel through the same memory; whoever wants to keep a tensor copies it, or joins its shards, which does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from mcore_compat.contracts import Group

BUCKET_BYTES = 64 * 2**20
# Shards start where a tensor of any type may start.
_ALIGNMENT = 16


@dataclass(frozen=True)
class Shard:
    """What all ranks know of a parameter, without its values.

    Attributes:
        key: Names the parameter in the stage that sends it.
        shape: Of the shard.
        dtype: Of the shard.
        expert: Split over expert-parallel ranks, too.
    """

    key: Any
    shape: tuple[int, ...]
    dtype: torch.dtype
    expert: bool = False

    @property
    def nbytes(self) -> int:
        """Size in bytes, rounded up so that the next one can follow."""
        size = math.prod(self.shape) * self.dtype.itemsize
        return -(-size // _ALIGNMENT) * _ALIGNMENT


@dataclass(frozen=True)
class StreamBucket:
    """Shards that travel together.

    Attributes:
        stage: Pipeline rank that sends them.
        expert: Whether they are gathered over expert-parallel ranks, too.
        shards: In order; each starts where the one before it ends.
    """

    stage: int
    expert: bool
    shards: tuple[Shard, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of one rank's part."""
        return sum(shard.nbytes for shard in self.shards)


@dataclass(frozen=True)
class StreamPlan:
    """All buckets, the same on every rank of the model, and the groups that they are gathered over.

    Attributes:
        pipeline: Between the stages.
        dense: Groups that split dense parameters.
        experts: Groups that split experts, the outermost last.
        buckets: In the order in which they travel.
    """

    pipeline: Group
    dense: tuple[Group, ...]
    experts: tuple[Group, ...]
    buckets: tuple[StreamBucket, ...]

    def groups(self, bucket: StreamBucket) -> tuple[Group, ...]:
        """The groups that a bucket is gathered over, without those of one rank."""
        groups = self.experts if bucket.expert else self.dense
        return tuple(group for group in groups if group.size > 1)


def plan_stream(
    mine: Sequence[Shard],
    pipeline: Group,
    dense: Sequence[Group],
    experts: Sequence[Group],
    bucket_bytes: int = BUCKET_BYTES,
) -> StreamPlan:
    """Exchange what every stage holds, once, and cut it into buckets. A collective call of the pipeline group.

    Args:
        mine: What this stage sends, in order; ranks that split the same parameters have the same list.
        pipeline: Between the stages.
        dense: Groups that split dense parameters.
        experts: Groups that split experts.
        bucket_bytes: What a bucket and this rank's part of it take together; more only where it holds one parameter.
    """
    stages: list[Sequence[Shard]] = [mine]
    if pipeline.size > 1:
        stages = [()] * pipeline.size
        dist.all_gather_object(stages, mine, group=pipeline.handle)
    limits = {False: bucket_bytes // _copies(dense), True: bucket_bytes // _copies(experts)}
    buckets = [
        StreamBucket(stage, expert, shards)
        for stage, held in enumerate(stages)
        for expert in (False, True)
        for shards in _cut([shard for shard in held if shard.expert is expert], limits[expert])
    ]
    return StreamPlan(pipeline, tuple(dense), tuple(experts), tuple(buckets))


def stream_buckets(
    plan: StreamPlan, value: Callable[[Any], torch.Tensor], device: torch.device
) -> Iterator[tuple[Any, list[torch.Tensor]]]:
    """Move the buckets; yields each parameter's key and all of its shards, the same on every rank of the model.

    Args:
        plan: From :func:`plan_stream`.
        value: Key to this rank's contiguous shard; asked of the stage that sends it only.
        device: Where buckets are made.

    Yields:
        Key, and one tensor per rank of the groups that split the parameter, the innermost group fastest: views that
        hold until the next one is asked for.
    """
    memory = _Memory(device)
    for bucket in plan.buckets:
        part = memory.take(0, bucket.nbytes)
        if bucket.stage == plan.pipeline.rank:
            _pack(bucket, value, part)
        if plan.pipeline.size > 1:
            dist.broadcast(part, src=plan.pipeline.ranks[bucket.stage], group=plan.pipeline.handle)
        for level, group in enumerate(plan.groups(bucket), start=1):
            parts = memory.take(level, group.size * part.numel())
            dist.all_gather_into_tensor(parts, part, group=group.handle)
            part = parts
        yield from _unpack(bucket, part)


class _Memory:
    """Memory that is used again: fresh pages cost more than the copies into them."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._held: dict[int, torch.Tensor] = {}

    def take(self, level: int, nbytes: int) -> torch.Tensor:
        """That many bytes; each level has memory of its own."""
        if level not in self._held or self._held[level].numel() < nbytes:
            self._held[level] = torch.empty(nbytes, dtype=torch.uint8, device=self._device)
        return self._held[level][:nbytes]


def _copies(groups: Sequence[Group]) -> int:
    """How often a rank's part is in memory at a time: once per rank that is gathered, and itself."""
    ranks = math.prod(group.size for group in groups)
    return ranks + 1 if ranks > 1 else 1


def _cut(shards: Sequence[Shard], limit: int) -> Iterator[tuple[Shard, ...]]:
    held: list[Shard] = []
    size = 0
    for shard in shards:
        if held and size + shard.nbytes > limit:
            yield tuple(held)
            held, size = [], 0
        held.append(shard)
        size += shard.nbytes
    if held:
        yield tuple(held)


def _views(bucket: StreamBucket, part: torch.Tensor) -> Iterator[tuple[Shard, torch.Tensor]]:
    """Each shard as it lies in one rank's part of the bucket."""
    start = 0
    for shard in bucket.shards:
        size = math.prod(shard.shape) * shard.dtype.itemsize
        yield shard, part[start : start + size].view(shard.dtype).view(shard.shape)
        start += shard.nbytes


def _pack(bucket: StreamBucket, value: Callable[[Any], torch.Tensor], part: torch.Tensor) -> None:
    for shard, place in _views(bucket, part):
        place.copy_(value(shard.key))


def _unpack(bucket: StreamBucket, gathered: torch.Tensor) -> Iterator[tuple[Any, list[torch.Tensor]]]:
    parts = torch.split(gathered, bucket.nbytes)
    for pieces in zip(*(_views(bucket, part) for part in parts), strict=True):
        yield pieces[0][0].key, [tensor for _, tensor in pieces]
