"""The common model T0, what it is trained on, and how one step compares with the reference; public API only."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch

import mcore_compat
from mcore_compat import DataParallelSettings, Groups, LossTerm, OptimizerSettings, StepResult, VocabShard
from mcore_compat.contracts import Batch
from mcore_compat.rl.logprobs import logprobs_and_entropy
from tests.contract.programs import plain

VOCABULARY = 64
LENGTH = 8
HIDDEN = 32
# With so large an epsilon the first update of Adam grows with the gradient, so a wrong scale shows in the weights.
SMOOTH = OptimizerSettings(lr=0.1, eps=1.0, weight_decay=0.0, clip_grad=0.0)
UNSHARDED = DataParallelSettings()
DISTRIBUTED = DataParallelSettings(use_distributed_optimizer=True)
# T0 would fit one bucket of the usual size; this size gives several.
OVERLAPPED = DataParallelSettings(overlap_grad_reduce=True, bucket_size=4000)

Rows = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Job:
    """One model and how it is trained."""

    layers: int = 2
    tied: bool = True
    head: Literal["lm", "value"] = "lm"
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    fields: Mapping[str, Any] = field(default_factory=dict)
    data_parallel: DataParallelSettings = UNSHARDED
    settings: OptimizerSettings = SMOOTH


@dataclass(frozen=True)
class Scenario:
    """A job and its batch, whose result must not depend on layout, split and release."""

    job: Job
    batch: Callable[[], Rows]
    steps: int = 1


class Trainee:
    """A T0 with an optimizer, on the ranks of the present layout."""

    def __init__(self, job: Job, bare: list[Any] | None = None) -> None:
        self.job = job
        self.here: Groups = mcore_compat.groups()
        self.seen: list[tuple[int, ...]] = []
        bare = bare_model(job) if bare is None else bare
        self.initial = {name: parameter.detach().clone() for name, parameter in named(bare)}
        self.chunks = mcore_compat.wrap_data_parallel(bare, settings=job.data_parallel)
        self.optimizer = mcore_compat.build_optimizer(replace(job.settings, precision=job.precision), self.chunks)

    def accumulate(self, batch: Batch, micro: int) -> Any:
        """Gradients of this data-parallel rank's share of the batch, in microbatches of ``micro`` rows."""
        mcore_compat.zero_grad(self.chunks, self.optimizer)
        share = len(batch["tokens"]) // self.here.dp.size
        start = self.here.dp.rank * share
        cuts = range(start, start + share, micro)
        microbatches = [{name: rows[cut : cut + micro] for name, rows in batch.items()} for cut in cuts]
        return mcore_compat.forward_backward(self.chunks, microbatches, self._loss, optimizer=self.optimizer)

    def train(self, batch: Batch, micro: int) -> StepResult:
        """Accumulate and step."""
        self.accumulate(batch, micro)
        result: StepResult = self.optimizer.step()
        return result

    def parameters(self) -> dict[str, Any]:
        """This rank's parameters under global names, as of the last step."""
        self.optimizer.finish_param_sync()
        return dict(named(self.chunks))

    def changed(self) -> int:
        """How many of this rank's parameters differ from where they began."""
        return sum(not torch.equal(p, self.initial[name]) for name, p in self.parameters().items())

    def _loss(self, output: torch.Tensor, batch: Batch) -> LossTerm:
        self.seen.append(tuple(output.shape))
        if self.job.head == "value":
            per_token = (output - batch["targets"]).square()
        else:
            per_token = -logprobs_and_entropy(output, batch["tokens"], vocabulary(self.here), entropy=False)[0]
        return LossTerm((per_token * batch["mask"]).sum(), batch["mask"].sum())


def bare_model(job: Job) -> list[Any]:
    """Chunks whose weights depend on their names only."""
    mcore_compat.seed(5)
    config = mcore_compat.transformer_config(
        precision=job.precision,
        num_layers=job.layers,
        hidden_size=HIDDEN,
        num_attention_heads=4,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        use_cpu_initialization=True,
        gradient_accumulation_fusion=False,
        bias_dropout_fusion=False,
        **job.fields,
    )
    chunks: list[Any] = mcore_compat.gpt_model(
        config,
        vocab_size=VOCABULARY,
        max_sequence_length=LENGTH,
        head=job.head,
        share_embeddings=job.tied,
    )
    fill(chunks)
    return chunks


def fill(chunks: list[Any]) -> None:
    """Give every parameter its value, whatever the layout; biases are not zero."""
    for name, parameter in named(chunks):
        shape = list(parameter.shape)
        if getattr(parameter, "tensor_model_parallel", False):
            shape[parameter.partition_dim] *= mcore_compat.groups().tp.size
        parameter.data.copy_(own_part(parameter, _initial(name, shape)))


def named(chunks: list[Any]) -> Iterator[tuple[str, Any]]:
    """Parameters under the names of the whole model; a last stage's copy of a tied embedding goes by that name."""
    for model in mcore_compat.unwrap(chunks):
        tied_copy = getattr(model, "share_embeddings_and_output_weights", False)
        for name, parameter in model.named_parameters():
            if name.startswith("decoder.layers."):
                layer, rest = name.removeprefix("decoder.layers.").split(".", 1)
                number = model.decoder.layers[int(layer)].layer_number - 1
                yield f"decoder.layers.{number}.{_expert(rest, model.config)}", parameter
            else:
                yield "embedding.word_embeddings.weight" if tied_copy and "output" in name else name, parameter


def _expert(name: str, config: Any) -> str:
    """Experts are numbered over all ranks."""
    ep = mcore_compat.groups().ep
    first = ep.rank * (config.num_moe_experts or 0) // ep.size
    return re.sub(r"local_experts\.(\d+)", lambda found: str(first + int(found[1])), name)


def own_part(parameter: Any, whole: torch.Tensor) -> torch.Tensor:
    """This tensor-parallel rank's part of a whole tensor."""
    if not getattr(parameter, "tensor_model_parallel", False):
        return whole
    tp = mcore_compat.groups().tp
    part: torch.Tensor = whole.chunk(tp.size, dim=parameter.partition_dim)[tp.rank]
    return part


def vocabulary(here: Groups) -> VocabShard:
    """The columns of this rank's logits."""
    rows = VOCABULARY // here.tp.size
    return VocabShard(
        here.tp.rank * rows, (here.tp.rank + 1) * rows, VOCABULARY, here.tp.handle if here.tp.size > 1 else None
    )


def eight_rows() -> Rows:
    """Rows with 1, 2, ..., 8 valid tokens."""
    valid = torch.arange(LENGTH)[None, :] <= torch.arange(8)[:, None]
    return {"tokens": _tokens(8, seed=1), "mask": valid.float()}


def two_batches() -> Rows:
    """Two rows for each of two data-parallel ranks, every token valid."""
    return {"tokens": torch.cat([_tokens(2, seed=2), _tokens(2, seed=3)]), "mask": torch.ones(4, LENGTH)}


def values() -> Rows:
    """Four rows with a target value for each token."""
    targets = torch.randn(4, LENGTH, generator=torch.Generator().manual_seed(4))
    return {"tokens": _tokens(4, seed=4), "mask": torch.ones(4, LENGTH), "targets": targets}


MIXTURE = {
    "num_moe_experts": 4,
    "moe_router_topk": 2,
    "moe_router_load_balancing_type": "none",
    "add_bias_linear": False,
}
# Gradients of T0 are of this epsilon's size, so both moments count.
DECAYING = OptimizerSettings(lr=0.1, eps=0.01, weight_decay=0.1, clip_grad=1.0)
SCENARIOS = {
    "eight rows": Scenario(Job(), eight_rows),
    "two batches": Scenario(Job(), two_batches),
    "four layers": Scenario(Job(layers=4), eight_rows),
    "critic": Scenario(Job(head="value"), values),
    "three steps": Scenario(Job(settings=DECAYING), eight_rows, steps=3),
    "experts": Scenario(Job(fields=MIXTURE), eight_rows, steps=2),
    "clipped experts": Scenario(Job(fields=MIXTURE, settings=replace(SMOOTH, clip_grad=1.0)), eight_rows, steps=2),
}


def compare(name: str, micro: int, reference: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
    """A scenario in the present layout against plain torch.

    Returns:
        norm and loss of the last step, and the reference's; the largest distance of a weight from the reference's, as
        part of the largest element of its tensor; the largest change since the start.
    """
    scenario = SCENARIOS[name]
    trainee = Trainee(replace(scenario.job, **changes))
    for _ in range(scenario.steps):
        loss = trainee.accumulate(scenario.batch(), micro).loss
        result = trainee.optimizer.step()
    found, expected = trainee.parameters(), reference[name]
    return {
        "norm": result.grad_norm,
        "loss": loss,
        "expected norm": expected["norm"],
        "expected loss": expected["loss"],
        "error": max(_relative(p, own_part(p, expected["weights"][key])) for key, p in found.items()),
        "update": max((p - trainee.initial[key]).abs().max().item() for key, p in found.items()),
    }


def reference_steps() -> dict[str, Any]:
    """What every scenario gives in plain torch."""
    return {
        name: plain.train(
            _whole_model(scenario.job),
            scenario.batch(),
            scenario.job.settings,
            steps=scenario.steps,
            value=scenario.job.head == "value",
        )
        for name, scenario in SCENARIOS.items()
    }


def buckets(chunks: list[Any]) -> int:
    """How many buckets the wrapper's own buffers have."""
    chunk = chunks[0]
    buffers = chunk.grad_buffers.values() if hasattr(chunk, "grad_buffers") else chunk.buffers
    return sum(len(buffer.buckets) for buffer in buffers)


def enter(**sizes: Any) -> Groups:
    """Leave the layout of the section before, and take up another one."""
    mcore_compat.reset()
    groups: Groups = mcore_compat.init_parallel(**sizes)
    return groups


def _whole_model(job: Job) -> dict[str, torch.Tensor]:
    """The initial weights of a job's whole model, tied where it is."""
    shapes = {"embedding.word_embeddings.weight": [VOCABULARY, HIDDEN], **_dense("decoder.final_layernorm", [HIDDEN])}
    for number in range(job.layers):
        shapes |= {f"decoder.layers.{number}.{name}": shape for name, shape in _layer(job).items()}
    if job.head == "value":
        shapes["output_layer.weight"] = [1, HIDDEN]
    return {name: _initial(name, shape) for name, shape in shapes.items()}


def _layer(job: Job) -> dict[str, list[int]]:
    experts, bias = job.fields.get("num_moe_experts"), job.fields.get("add_bias_linear", True)
    shapes = {**_dense("input_layernorm", [HIDDEN]), **_dense("pre_mlp_layernorm", [HIDDEN])}
    shapes |= _dense("self_attention.linear_qkv", [3 * HIDDEN, HIDDEN], bias=bias)
    shapes |= _dense("self_attention.linear_proj", [HIDDEN, HIDDEN], bias=bias)
    for mlp in [f"mlp.experts.{expert}" for expert in range(experts)] if experts else ["mlp"]:
        shapes |= _dense(f"{mlp}.linear_fc1", [4 * HIDDEN, HIDDEN], bias=bias)
        shapes |= _dense(f"{mlp}.linear_fc2", [HIDDEN, 4 * HIDDEN], bias=bias)
    return {**shapes, "mlp.router.weight": [experts, HIDDEN]} if experts else shapes


def _dense(name: str, shape: list[int], *, bias: bool = True) -> dict[str, list[int]]:
    return {f"{name}.weight": shape, **({f"{name}.bias": shape[:1]} if bias else {})}


def _initial(name: str, shape: list[int]) -> torch.Tensor:
    draw = torch.randn(shape, generator=torch.Generator().manual_seed(zlib.crc32(name.encode())))
    if len(shape) > 1:
        return 0.2 * draw
    return 0.1 * draw + (1.0 if "norm" in name and name.endswith("weight") else 0.0)


def _tokens(rows: int, seed: int) -> torch.Tensor:
    return torch.randint(0, VOCABULARY, (rows, LENGTH), generator=torch.Generator().manual_seed(seed))


def _relative(found: torch.Tensor, expected: torch.Tensor) -> float:
    return ((found.detach() - expected).abs().max() / expected.abs().max()).item()
