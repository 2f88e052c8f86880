"""What four ranks do to stream weights, in one layout after another."""

from __future__ import annotations

import hashlib
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist

import mcore_compat
from mcore_compat import DataParallelSettings
from mcore_compat.matrix.table import at_least
from mcore_compat.weights import Architecture
from tests.buffers.programs import ADAM
from tests.contract.programs.t0 import DISTRIBUTED, LENGTH, VOCABULARY, Job, Trainee, bare_model, enter
from tests.contract.programs.t0 import two_batches as four_rows

ARCHITECTURE = Architecture(
    family="llama",
    num_layers=2,
    hidden_size=32,
    ffn_hidden_size=48,
    num_heads=4,
    num_kv_heads=2,
    head_dim=8,
    vocab_size=VOCABULARY - 3,
    max_positions=LENGTH,
    rms_eps=1e-5,
    rope_theta=10000.0,
)
_GIVEN = ("num_layers", "hidden_size", "num_attention_heads", "hidden_dropout", "attention_dropout")
LLAMA = {name: value for name, value in ARCHITECTURE.config_fields().items() if name not in _GIVEN}
JOB = Job(tied=False, fields=LLAMA, settings=ADAM, data_parallel=DISTRIBUTED)
OVERLAPPED = DataParallelSettings(
    use_distributed_optimizer=True, overlap_grad_reduce=True, overlap_param_gather=True, bucket_size=4000
)
SMALL = 30_000
COLLECTIVES = tuple(
    name
    for name in dir(dist)
    if name.startswith(("all_gather", "all_reduce", "all_to_all", "broadcast", "reduce", "gather", "scatter", "send"))
    and callable(getattr(dist, name))
)
WAYS: dict[str, dict[str, int]] = {
    "first": {},
    "second": {},
    "small": {"bucket_bytes": SMALL},
    "small again": {"bucket_bytes": SMALL},
}
Streamed = dict[str, torch.Tensor]


def four_ranks(release: str) -> dict[str, Any]:
    """Everything, in one start of the ranks."""
    warnings.simplefilter("ignore")
    mcore_compat.prepare("cpu")
    found = {"tp and pp": pipeline_and_tensor()}
    if at_least(release, "0.6.0"):
        found["pending gather"] = pending_gather()
    if at_least(release, "0.5.0") and release != "0.10.0":  # 0.10.0 cannot build experts without Transformer Engine
        found["experts"] = experts()
    return found


def pipeline_and_tensor() -> dict[str, Any]:
    """Stream a trained model in several ways, and from a model on one process that was filled with what came."""
    enter(tp=2, pp=2)
    trainee = Trainee(JOB)
    for _ in range(2):
        trainee.train(four_rows(), 2)
    chunks = trainee.chunks
    streams, counts = {}, {}
    for name, options in WAYS.items():
        with counted() as counts[name]:
            streams[name] = dict(mcore_compat.iter_weights(chunks, ARCHITECTURE, **options))
    full = dict(mcore_compat.iter_weights(chunks, names="megatron"))
    engine = Engine() if dist.get_rank() == 1 else None
    mcore_compat.sync(chunks, engine, architecture=ARCHITECTURE, bucket_bytes=SMALL)
    chosen = dict(mcore_compat.iter_weights(chunks, ARCHITECTURE, ranks=(2,)))
    own = own_parts_are(chunks, full)
    enter()
    alone = bare_model(JOB)
    for name, parameter in named(alone):
        parameter.data.copy_(full[name])
    return {
        "changed": trainee.changed(),
        "digests": {name: digest(found) for name, found in streams.items()},
        "one process": digest(dict(mcore_compat.iter_weights(alone, ARCHITECTURE))),
        "one process, megatron": digest(dict(mcore_compat.iter_weights(alone, names="megatron"))),
        "megatron": digest(full),
        "own parts": own,
        "engine": None if engine is None else engine.digest,
        "chosen": len(chosen),
        "counts": counts,
        "tensors": len(streams["first"]),
        "unknown": _refusal(alone),
        "contiguous": all(tensor.is_contiguous() for tensor in streams["first"].values()),
    }


def _refusal(chunks: list[Any]) -> str:
    try:
        mcore_compat.iter_weights(chunks)
    except mcore_compat.ConfigError as error:
        return str(error)
    return ""


def pending_gather() -> dict[str, str]:
    """Stream right after a step whose gather waits for the next forward pass, and without that (C07)."""
    enter(tp=2)
    return {name: _after_a_step(settings) for name, settings in (("plain", DISTRIBUTED), ("overlapped", OVERLAPPED))}


def _after_a_step(settings: DataParallelSettings) -> str:
    trainee = Trainee(replace(JOB, data_parallel=settings))
    trainee.train(four_rows(), 2)
    return digest(dict(mcore_compat.iter_weights(trainee.chunks, ARCHITECTURE)))


def experts() -> dict[str, Any]:
    """Four experts over two expert-parallel ranks of two tensor-parallel ones each."""
    enter(tp=2, ep=2)
    fields = {**LLAMA, "num_moe_experts": 4, "sequence_parallel": True}
    chunks = bare_model(Job(tied=False, fields=fields))
    for name, parameter in named(chunks):
        if "local_experts" in name:
            parameter.data += mcore_compat.groups().ep.rank
    full = dict(mcore_compat.iter_weights(chunks, names="megatron"))
    return {
        "digest": digest(full),
        "own parts": own_parts_are(chunks, full),
        "experts": sorted(name for name in full if "local_experts" in name and "layers.0" in name),
    }


class Engine:
    """Keeps a digest of the weights it is given."""

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Take them one at a time."""
        self.digest = digest({name: tensor.clone() for name, tensor in weights})


def named(chunks: list[Any]) -> Iterator[tuple[str, Any]]:
    """Parameters under the names that they have in a model on one process."""
    for model in mcore_compat.unwrap(chunks):
        numbers = {f"decoder.layers.{at}": layer.layer_number - 1 for at, layer in enumerate(model.decoder.layers)}
        for name, parameter in model.named_parameters():
            layer = ".".join(name.split(".")[:3])
            yield name.replace(layer, f"decoder.layers.{numbers[layer]}") if layer in numbers else name, parameter


def own_parts_are(chunks: list[Any], full: Streamed) -> bool:
    """Whether this rank's parameters are their parts of the full tensors, cut by hand."""
    here = mcore_compat.groups()
    for name, parameter in named(chunks):
        whole = full[_global_expert(name, here.ep.rank)]
        cut = getattr(parameter, "tensor_model_parallel", False)
        blocks = whole.chunk(2) if "linear_fc1" in name else [whole]
        parts = [block.chunk(here.tp.size, dim=parameter.partition_dim)[here.tp.rank] for block in blocks if cut]
        if not torch.equal(torch.cat(parts) if cut else whole, parameter.detach()):
            return False
    return True


def _global_expert(name: str, rank: int) -> str:
    before, found, after = name.partition("local_experts.")
    if not found:
        return name
    number, _, rest = after.partition(".")
    return f"{before}local_experts.{rank * 2 + int(number)}.{rest}"


def digest(tensors: Streamed) -> str:
    """Hash of names and bits, in order of names."""
    total = hashlib.sha256()
    for name in sorted(tensors):
        total.update(f"{name} {list(tensors[name].shape)}".encode())
        total.update(tensors[name].contiguous().view(torch.uint8).numpy().tobytes())
    return total.hexdigest()


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """Count the calls of collectives."""
    calls: Counter[str] = Counter()
    originals = {name: getattr(dist, name) for name in COLLECTIVES}

    def counting(name: str) -> Any:
        def call(*args: Any, **keywords: Any) -> Any:
            calls[name] += 1
            return originals[name](*args, **keywords)

        return call

    try:
        for name in originals:
            setattr(dist, name, counting(name))
        yield calls
    finally:
        for name, original in originals.items():
            setattr(dist, name, original)
