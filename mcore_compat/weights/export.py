"""Megatron model → stream of full tensors, whole buckets at a time, on every rank."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, get_args
from weakref import WeakKeyDictionary

import torch.distributed as dist

from mcore_compat.buffers.stream import BUCKET_BYTES, Shard, StreamPlan, plan_stream, stream_buckets
from mcore_compat.errors import ConfigError, WeightsError
from mcore_compat.weights.megatron import MegatronKey, megatron_parameters
from mcore_compat.weights.modules import local_parameters, remembered, unwrapped
from mcore_compat.weights.names import LM_HEAD, VALUE_HEAD, Entry, body_entries, cut_dimension
from mcore_compat.weights.tensors import join, join_gated, unfuse

if TYPE_CHECKING:
    import torch

    from mcore_compat.contracts import Group, Groups, RolloutEngine
    from mcore_compat.weights.architecture import Architecture

Names = Literal["hf", "megatron"]
Named = Iterator[tuple[str, "torch.Tensor"]]
# Key of a shard, and the shards of all ranks -> names and full tensors.
_Merge = Callable[[Any, "list[torch.Tensor]"], Named]
_plans: WeakKeyDictionary[Any, dict[Any, StreamPlan]] = WeakKeyDictionary()


def iter_weights(
    chunks: Sequence[Any],
    architecture: Architecture | None = None,
    groups: Groups | None = None,
    *,
    names: Names = "hf",
    bucket_bytes: int = BUCKET_BYTES,
    ranks: Collection[int] | None = None,
) -> Named:
    """Yield every full tensor of the model, in the same order on all ranks of it, as of the last optimizer step.

    All ranks of the model-parallel group (with expert parallelism: of all groups that hold experts) have to call, and
    to exhaust the stream. What lies where is exchanged at the first call and kept. Then each bucket takes one
    broadcast over the pipeline group and one all-gather over the tensor-parallel group, where these have more than
    one rank; no tensor takes one of its own.

    Args:
        chunks: Model chunks of this rank, wrapped or not.
        architecture: Of the folder that the model was built from; ``None``: of the one that ``load_hf`` filled it
            from. Only ``hf`` names need it.
        groups: ``None``: those of ``init_parallel``.
        names: ``hf``: Hugging Face names of dense Llama-family models. ``megatron``: the names that a GPT model on one
            process has, padded vocabulary included, experts under their global numbers.
        bucket_bytes: Memory that buckets travel through, besides the tensor that is yielded; more only where one
            tensor is bigger.
        ranks: Global ranks that want tensors, the others only take part; ``None``: all.

    Yields:
        Name and a contiguous copy in the parameter's dtype and on its device. The embedding has exactly
        ``vocab_size`` rows under ``hf`` names; where it is tied, nothing follows for the head. A value model ends with
        ``score.weight``.

    Raises:
        WeightsError: The chunks are not a model of this architecture, or no stage holds some part of it.
        ConfigError: No architecture is known, arguments of another kind, or parameters that are offloaded.
    """
    from mcore_compat.seams.parallel import groups as current_groups
    from mcore_compat.seams.param_sync import finish_pending

    _check(chunks, names, bucket_bytes)
    finish_pending(chunks)
    here = groups or current_groups()
    wanted = ranks is None or dist.get_rank() in ranks
    if names == "megatron":
        return _by_megatron_names(chunks, here, bucket_bytes, wanted)
    return _by_hf_names(chunks, architecture or _known(chunks), here, bucket_bytes, wanted)


def _check(chunks: Sequence[Any], names: Names, bucket_bytes: int) -> None:
    from mcore_compat.seams._arguments import require_chunks
    from mcore_compat.seams._memory import require_here

    require_chunks(chunks)
    if names not in get_args(Names) or bucket_bytes < 1:
        raise ConfigError(
            f"expected names of {', '.join(get_args(Names))} and bucket_bytes > 0, found {names!r}, {bucket_bytes}"
        )
    require_here(chunks, "iter_weights", "params")


def sync(chunks: Sequence[Any], engine: RolloutEngine | None, **options: Any) -> None:
    """Give a rollout engine the model's weights, as of the last optimizer step.

    Args:
        chunks: Model chunks of this rank, wrapped or not.
        engine: ``None``: this rank has none and only takes part.
        **options: As :func:`iter_weights`.

    Raises:
        ConfigError: The engine has no ``load_weights``, or left some tensors.
    """
    if engine is not None and not callable(getattr(engine, "load_weights", None)):
        raise ConfigError(
            f"{type(engine).__name__} has no load_weights", hint="see mcore_compat.RolloutEngine; None for no engine"
        )
    stream = iter_weights(chunks, **options)
    if engine is not None:
        engine.load_weights(stream)
    left = sum(1 for _ in stream)  # the other ranks wait for this one's part in them
    if engine is not None and left:
        raise ConfigError(
            f"{type(engine).__name__}.load_weights left {left} tensors, which it has not got",
            hint="iterate over all of them before it returns",
        )


def _known(chunks: Sequence[Any]) -> Architecture:
    found = remembered(chunks)
    if found is None:
        raise ConfigError(
            "the architecture of this model is not known: it was not filled by load_hf",
            hint="pass architecture=read_architecture(folder), or names='megatron'",
        )
    return found


def _by_hf_names(
    chunks: Sequence[Any], architecture: Architecture, here: Groups, bucket_bytes: int, wanted: bool
) -> Named:
    if not hasattr(architecture, "family"):
        from mcore_compat.seams._arguments import misplaced

        hint = "iter_weights(chunks, mcore_compat.weights.read_architecture(folder), groups)"
        raise misplaced(architecture, "an Architecture", hint)
    parameters = local_parameters(chunks, architecture)
    entries = (*body_entries(architecture), Entry(LM_HEAD), Entry(VALUE_HEAD))
    held = [(number, parameters[entry]) for number, entry in enumerate(entries) if entry in parameters]
    mine = [Shard(number, tuple(parameter.shape), parameter.dtype) for number, parameter in held]
    plan = _plan(chunks, mine, here, "hf", bucket_bytes)
    sent = {shard.key for bucket in plan.buckets for shard in bucket.shards}
    for number, entry in enumerate(entries[:-2]):
        if number not in sent:
            raise WeightsError(f"no pipeline stage holds {entry.megatron}", hint="pass all chunks of this rank")

    def merge(number: int, pieces: list[torch.Tensor]) -> Named:
        return _full_tensors(entries[number], pieces, architecture)

    return _stream(plan, dict(held), merge if wanted else _nothing)


def _by_megatron_names(chunks: Sequence[Any], here: Groups, bucket_bytes: int, wanted: bool) -> Named:
    parameters = megatron_parameters(chunks)
    mine = [Shard(key, tuple(p.shape), p.dtype, expert=key.experts > 0) for key, p in parameters.items()]
    plan = _plan(chunks, mine, here, "megatron", bucket_bytes)
    return _stream(plan, parameters, partial(_megatron_tensors, ep=here.ep.size) if wanted else _nothing)


def _plan(chunks: Sequence[Any], mine: Sequence[Shard], here: Groups, names: Names, bucket_bytes: int) -> StreamPlan:
    plans = _plans.setdefault(unwrapped(chunks[0]), {})
    key = (here, names, bucket_bytes)
    if key not in plans:
        plans[key] = plan_stream(mine, here.pp, (here.tp,), _expert_groups(here), bucket_bytes)
    return plans[key]


def _expert_groups(here: Groups) -> tuple[Group, ...]:
    expert_tp = here.layout.expert_tp or here.tp.size
    if expert_tp not in (1, here.tp.size):
        raise ConfigError(f"weights of experts over {expert_tp} of {here.tp.size} tensor-parallel ranks cannot be read")
    return (here.ep,) if expert_tp == 1 else (here.tp, here.ep)


def _stream(plan: StreamPlan, parameters: dict[Any, torch.nn.Parameter], merge: _Merge) -> Named:
    device = next(iter(parameters.values())).device
    for key, pieces in stream_buckets(plan, lambda key: parameters[key].detach(), device):
        yield from merge(key, pieces)


def _nothing(key: Any, pieces: list[torch.Tensor]) -> Named:
    yield from ()


def _full_tensors(entry: Entry, pieces: list[torch.Tensor], architecture: Architecture) -> Named:
    """Join the slices of all tensor-parallel ranks and take the fused parameter apart."""
    dimension = cut_dimension(entry.rule)
    by_rank = [unfuse(architecture, entry.rule, piece) for piece in (pieces if dimension is not None else pieces[:1])]
    for name, parts in zip(entry.hf, zip(*by_rank, strict=True), strict=True):
        full = join(parts, dimension)
        if entry.rule.cut == "vocab" and len(full) > architecture.vocab_size:
            full = full[: architecture.vocab_size].clone()  # without the padding behind it
        yield name, full


def _megatron_tensors(key: MegatronKey, pieces: list[torch.Tensor], ep: int) -> Named:
    """Join slices; of experts there is one tensor per expert-parallel rank."""
    blocks = ep if key.experts else 1
    size = len(pieces) // blocks
    for block in range(blocks):
        split = pieces[block * size : (block + 1) * size]
        full = join_gated(split) if key.gated else join(split, key.dimension)
        yield key.full_name(block), full
