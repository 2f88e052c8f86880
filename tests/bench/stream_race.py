"""Whole buckets against one broadcast and one all-gather per parameter, on a model of 24 layers in bf16.

The workaround comes in two forms: as frameworks have it, where the stage that holds a parameter first says what comes,
and at its best, where everybody knows that already.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist

import mcore_compat
from mcore_compat.weights.megatron import MegatronKey, megatron_parameters
from mcore_compat.weights.tensors import join, join_gated
from tests.buffers.streaming import LLAMA, counted
from tests.rl.memory import peak_bytes

SIZES = {"num_layers": 24, "hidden_size": 384, "num_attention_heads": 8}
FIELDS = {**LLAMA, "num_query_groups": 4, "kv_channels": 48, "ffn_hidden_size": 1024, "perform_initialization": False}
VOCABULARY = 16384
Stream = Callable[[], Iterator[tuple[str, torch.Tensor]]]


def race(bucket_bytes: int, rounds: int) -> dict[str, Any]:
    """Seconds (the best of some rounds, in turn) and collectives of all three, and our peak memory."""
    warnings.simplefilter("ignore")
    mcore_compat.prepare("cpu")
    mcore_compat.init_parallel(tp=2, pp=2)
    mcore_compat.seed(1)
    config = mcore_compat.transformer_config(precision="bf16", **SIZES, **FIELDS)
    chunks = mcore_compat.gpt_model(config, vocab_size=VOCABULARY, max_sequence_length=64)
    for parameter in chunks[0].parameters():
        # What tensor-parallel ranks all have is the same on all of them.
        own = dist.get_rank() if parameter.tensor_model_parallel else 0
        parameter.data.normal_(generator=torch.Generator().manual_seed(own))
    stages = _stages(chunks)

    def whole_buckets() -> Iterator[tuple[str, torch.Tensor]]:
        return mcore_compat.iter_weights(chunks, names="megatron", bucket_bytes=bucket_bytes)

    def known() -> Iterator[tuple[str, torch.Tensor]]:
        return _one_by_one(chunks, stages, announced=False)

    def announced() -> Iterator[tuple[str, torch.Tensor]]:
        return _one_by_one(chunks, stages, announced=True)

    contestants: tuple[Stream, ...] = (whole_buckets, known, announced)
    found, expected = dict(whole_buckets()), dict(known())
    equal = found.keys() == expected.keys() and all(torch.equal(found[name], expected[name]) for name in found)
    nbytes = sum(tensor.nbytes for tensor in found.values())
    elements = sum(tensor.numel() for tensor in found.values())
    del found, expected
    times = [[_seconds(stream) for stream in contestants] for _ in range(rounds)]
    return {
        "equal": equal,
        "elements": elements,
        "seconds": [min(column) for column in zip(*times, strict=True)],
        "memcpy": _memcpy_seconds(nbytes, rounds),
        "collectives": [_collectives(stream) for stream in contestants],
        "memory": peak_bytes(lambda: _consume(whole_buckets)) / bucket_bytes,
    }


def _stages(chunks: list[Any]) -> list[list[tuple[MegatronKey, tuple[int, ...]]]]:
    """What each pipeline stage holds; known beforehand, so that it costs the other side nothing."""
    here = mcore_compat.groups()
    stages: list[list[tuple[MegatronKey, tuple[int, ...]]]] = [[]] * here.pp.size
    mine = [(key, tuple(parameter.shape)) for key, parameter in megatron_parameters(chunks).items()]
    dist.all_gather_object(stages, mine, group=here.pp.handle)
    return stages


def _one_by_one(chunks: list[Any], stages: Any, *, announced: bool) -> Iterator[tuple[str, torch.Tensor]]:
    here = mcore_compat.groups()
    parameters = megatron_parameters(chunks)
    for stage, held in enumerate(stages):
        for key, shape in held:
            mine = stage == here.pp.rank
            if announced:
                box = [(key, shape) if mine else None]
                dist.broadcast_object_list(box, src=here.pp.ranks[stage], group=here.pp.handle)
            local = parameters[key].detach() if mine else torch.empty(shape, dtype=torch.bfloat16)
            dist.broadcast(local, src=here.pp.ranks[stage], group=here.pp.handle)
            pieces = [local]
            if key.dimension is not None:
                pieces = [torch.empty_like(local) for _ in range(here.tp.size)]
                dist.all_gather(pieces, local, group=here.tp.handle)
            yield key.name, join_gated(pieces) if key.gated else join(pieces, key.dimension)


def _consume(stream: Stream) -> None:
    for _ in stream():
        pass


def _seconds(stream: Stream) -> float:
    dist.barrier()
    started = time.perf_counter()
    _consume(stream)
    return time.perf_counter() - started


def _memcpy_seconds(nbytes: int, rounds: int) -> float:
    source, target = torch.ones(nbytes, dtype=torch.uint8), torch.ones(nbytes, dtype=torch.uint8)
    times = []
    for _ in range(rounds):
        dist.barrier()
        started = time.perf_counter()
        target.copy_(source)
        times.append(time.perf_counter() - started)
    return min(times)


def _collectives(stream: Stream) -> int:
    with counted() as calls:
        _consume(stream)
    return sum(calls.values())
