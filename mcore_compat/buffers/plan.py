"""The layout of Megatron's flat buffers on one rank, computed: no process group, no torch, no Megatron.

The wrapper takes trainable parameters in the reverse of the order in which modules registered them, one buffer per
kind, and cuts each buffer into buckets. Everything in which releases differ is a
:class:`~mcore_compat.seams.param_padding.PaddingRule`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from mcore_compat.contracts import DataParallelSettings
from mcore_compat.errors import ConfigError
from mcore_compat.matrix.table import at_least
from mcore_compat.seams.keywords import FIRST_RELEASE, unavailable
from mcore_compat.seams.param_padding import PaddingRule, padding_rule, round_up

DEFAULT_BUCKET_SIZE = 40_000_000
BUCKET_SIZE_PER_RANK = 1_000_000
HIGH_BANDWIDTH_MULTIPLE = 2**16
_LAYOUT_OPTIONS = ("num_distributed_optimizer_instances", "pad_buckets_for_high_nccl_busbw")


@dataclass(frozen=True)
class Parameter:
    """A parameter as the wrapper sees it.

    Attributes:
        name: Of the parameter in its chunk.
        shape: Of this rank's slice.
        dtype: ``bfloat16``, ``float32`` …; of fp8 parameters the one that they pretend to have.
        tied: It is an embedding whose other copy lies on another pipeline stage.
        expert: It belongs to an expert and is shared by expert-data-parallel ranks only.
        frozen: It needs no gradient.
        fp8: It is stored as fp8.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str = "bfloat16"
    tied: bool = False
    expert: bool = False
    frozen: bool = False
    fp8: bool = False


@dataclass(frozen=True)
class Place:
    """Where a parameter and its gradient lie: elements ``start`` to ``end`` of the buffer, in that bucket."""

    name: str
    shape: tuple[int, ...]
    start: int
    end: int
    bucket: int


@dataclass(frozen=True)
class Bucket:
    """A stretch of a buffer that one collective moves, padding included."""

    start: int
    end: int
    numel_unpadded: int


@dataclass(frozen=True)
class BufferLayout:
    """One buffer.

    Attributes:
        parameter_type: What it stores (``uint8`` for fp8); ``None`` on releases whose buffers hold gradients of
            parameters of any type.
        gradient_type: Type of its gradients.
        expert: Whether it holds experts.
        places: In the order of the buffer.
        buckets: In the order of the buffer.
    """

    parameter_type: str | None
    gradient_type: str
    expert: bool
    places: tuple[Place, ...]
    buckets: tuple[Bucket, ...]

    @property
    def numel(self) -> int:
        """Elements, padding included."""
        return self.buckets[-1].end

    @property
    def numel_unpadded(self) -> int:
        """Elements without the padding at the ends of buckets."""
        return sum(bucket.numel_unpadded for bucket in self.buckets)

    @cached_property
    def misplaced(self) -> tuple[str, ...]:
        """Parameters that lie outside their bucket: upstream's defect up to 0.12 with tied embeddings."""
        return tuple(
            place.name
            for place in self.places
            if place.start < self.buckets[place.bucket].start or place.end > self.buckets[place.bucket].end
        )


@dataclass(frozen=True)
class ChunkLayout:
    """All buffers of one model chunk: dense ones first, each kind in the order in which it first appears.

    Attributes:
        buffers: The buffers.
        unbuffered: Trainable parameters without a buffer (experts up to 0.5).
    """

    buffers: tuple[BufferLayout, ...]
    unbuffered: tuple[str, ...] = ()


@dataclass
class _Writer:
    """Lays the parameters of one buffer one after the other."""

    rule: PaddingRule
    ranks: int
    bucket_size: int | None
    sharded: bool
    extra_multiple: int
    places: list[Place] = field(default_factory=list)
    buckets: list[Bucket] = field(default_factory=list)
    position: int = 0
    bucket_start: int = 0
    held: int = 0

    def add(self, parameter: Parameter) -> None:
        """Place a parameter, and close buckets before and after it as the rule says."""
        tied_start = self.rule.tied_start if parameter.tied and self.sharded else None
        start = round_up(self.position, self.rule.parameter_multiple) if self.sharded else self.position
        if tied_start and self.held:
            full, start = tied_start(start, self._padded(start), self.ranks)
            self._close(full)
        self.position = start + math.prod(parameter.shape)
        self.places.append(Place(parameter.name, parameter.shape, start, self.position, len(self.buckets)))
        self.held += 1
        is_full = self.bucket_size is not None and self.position - self.bucket_start >= self.bucket_size
        if tied_start or (is_full and self.held >= self.rule.fewest):
            self._close(self.position)
            self.position = self.bucket_start

    def finish(self) -> None:
        """Close the last bucket."""
        if self.held:
            self._close(self.position)

    def _padded(self, position: int) -> int:
        return self.rule.bucket_end(position, self.ranks, self.extra_multiple) if self.sharded else position

    def _close(self, position: int) -> None:
        end = self._padded(position)
        self.buckets.append(Bucket(self.bucket_start, end, position - self.bucket_start))
        self.bucket_start, self.held = end, 0


def plan_buffers(
    parameters: Sequence[Parameter],
    settings: DataParallelSettings | None = None,
    *,
    dp: int,
    cp: int = 1,
    expert_dp: int | None = None,
    stage: int = 0,
    chunk: int = 0,
    release: str | None = None,
) -> ChunkLayout:
    """Compute the buffers that the data-parallel wrapper makes for one model chunk of one rank.

    Args:
        parameters: In the order of registration (``named_parameters()``), frozen ones included.
        settings: What the wrapper is asked for.
        dp: Data-parallel size without context parallelism.
        cp: Context-parallel size.
        expert_dp: Ranks that share an expert; ``None``: ``dp`` times ``cp``.
        stage: Pipeline stage; only the first one cuts buffers into buckets.
        chunk: Number of the chunk on this rank; likewise.
        release: Megatron-Core release, which need not be there; ``None``: the Megatron that is there.

    Raises:
        ConfigError: Upstream cannot build this layout (tied embeddings up to 0.8), or the sizes contradict each other.
        FeatureUnavailable: The named release has no such option.
    """
    settings = settings or DataParallelSettings()
    _check(parameters, {"dp": dp, "cp": cp, "expert_dp": expert_dp}, settings, release)
    rule = padding_rule(release)
    kinds: dict[tuple[str | None, str, bool], list[Parameter]] = {}
    unbuffered = []
    for parameter in parameters:
        if parameter.expert and not parameter.frozen and not rule.buffers_experts:
            unbuffered.append(parameter.name)
        elif not parameter.frozen:
            kinds.setdefault(_kind(parameter, rule, settings), []).append(parameter)
    bucket_size = _bucket_size(rule, settings, dp, cut=stage == 0 and chunk == 0)
    instances = settings.num_distributed_optimizer_instances
    sharers = {False: dp * cp // instances, True: (expert_dp or dp * cp) // (instances if rule.splits_experts else 1)}
    buffers = [
        _buffer(kind, members, _writer(rule, settings, sharers[kind[2]], bucket_size))
        for kind, members in kinds.items()
    ]
    return ChunkLayout(tuple(sorted(buffers, key=lambda buffer: buffer.expert)), tuple(unbuffered))


def _check(
    parameters: Sequence[Parameter],
    sizes: Mapping[str, int | None],
    settings: DataParallelSettings,
    release: str | None,
) -> None:
    if not all(isinstance(parameter, Parameter) for parameter in parameters):
        raise ConfigError(
            f"expected a list of {__name__}.Parameter, found {type(parameters[0]).__name__} in it",
            hint="[Parameter(name, tuple(p.shape), 'float32') for name, p in chunk.named_parameters()]",
        )
    instances = settings.num_distributed_optimizer_instances
    for name, size in {**sizes, "num_distributed_optimizer_instances": instances}.items():
        if size is not None and size < 1:
            raise ConfigError(f"{name} must be at least 1, found {size}")
    ranks = (sizes["dp"] or 1) * (sizes["cp"] or 1)
    if ranks % instances:
        raise ConfigError(f"{instances} instances of the optimizer do not divide {ranks} data-parallel ranks")
    defaults = DataParallelSettings()
    for option in _LAYOUT_OPTIONS:
        first = FIRST_RELEASE["DistributedDataParallelConfig"][option]
        if release and getattr(settings, option) != getattr(defaults, option) and not at_least(release, first):
            raise unavailable(f"{option} on {release}", first)


def _kind(parameter: Parameter, rule: PaddingRule, settings: DataParallelSettings) -> tuple[str | None, str, bool]:
    stored = "uint8" if parameter.fp8 else parameter.dtype
    gradient = "float32" if settings.grad_reduce_in_fp32 else parameter.dtype
    return stored if rule.by_parameter_type else None, gradient, parameter.expert


def _bucket_size(rule: PaddingRule, settings: DataParallelSettings, dp: int, *, cut: bool) -> int | None:
    if not (cut and settings.overlap_grad_reduce) or settings.disable_bucketing:
        return None
    if settings.bucket_size is not None:
        return settings.bucket_size
    return max(DEFAULT_BUCKET_SIZE, BUCKET_SIZE_PER_RANK * dp) if rule.size_grows else DEFAULT_BUCKET_SIZE


def _writer(rule: PaddingRule, settings: DataParallelSettings, ranks: int, bucket_size: int | None) -> _Writer:
    extra = HIGH_BANDWIDTH_MULTIPLE if settings.pad_buckets_for_high_nccl_busbw else 1
    return _Writer(rule, ranks, bucket_size, settings.use_distributed_optimizer, extra)


def _buffer(kind: tuple[str | None, str, bool], members: Iterable[Parameter], writer: _Writer) -> BufferLayout:
    for parameter in reversed(list(members)):
        writer.add(parameter)
    writer.finish()
    return BufferLayout(*kind, tuple(writer.places), tuple(writer.buckets))
