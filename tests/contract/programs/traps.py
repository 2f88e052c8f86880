"""Calls that a user mixes up, each with the library's answer; "" where there is none."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch

import mcore_compat
from mcore_compat import LossTerm, OptimizerSettings, TrainState, UpdateGuard
from mcore_compat.contracts import Batch
from mcore_compat.seams.zero_grad import seam as zero_grad
from tests.contract.programs.small_gpt import LENGTH, VOCAB, small_gpt
from tests.contract.programs.t0 import DISTRIBUTED, SMOOTH, enter
from tests.contract.programs.toy import Toy, refusal

FIELDS: dict[str, Any] = {"num_layers": 1, "hidden_size": 8, "num_attention_heads": 1}
BATCHES = [{"tokens": torch.arange(LENGTH).repeat(2, 1) + shift} for shift in (0, 8)]
Attempts = dict[str, Callable[[], Any]]


class _Job:
    """A small model and its optimizer."""

    def __init__(self) -> None:
        self.chunks = mcore_compat.wrap_data_parallel(small_gpt(), settings=DISTRIBUTED)
        self.optimizer = mcore_compat.build_optimizer(SMOOTH, self.chunks)

    def train(self, batches: Any = BATCHES, *, chunks: Any = None, optimizer: Any = None, **changes: Any) -> None:
        """One pass, of which one argument may be wrong."""
        mcore_compat.zero_grad(self.chunks, self.optimizer)
        self.accumulate(batches, chunks=chunks, optimizer=optimizer, **changes)

    def accumulate(self, batches: Any = BATCHES, *, chunks: Any = None, optimizer: Any = None, **changes: Any) -> None:
        """The same without clearing gradients before; ``changes``: of the loss term, from the right one."""

        def loss(logits: torch.Tensor, batch: Batch) -> Any:
            return _changed(_term(logits, batch), batch, **changes)

        mcore_compat.forward_backward(
            chunks or self.chunks, batches, loss, optimizer=self.optimizer if optimizer is None else optimizer
        )


class Lazy:
    """Takes one tensor and returns."""

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Look at the first one."""
        next(iter(weights))


def one_process(steps: dict[str, Any], folder: Path) -> dict[str, str]:
    """Each mistake by itself."""
    enter()
    job = _Job()
    job.train()
    attempts = {**_building(job), **_passes(job), **_terms(job), **_weights(job, folder), **_offloaded(job, folder)}
    return {name: refusal(attempt) for name, attempt in attempts.items()}


def two_ranks(steps: dict[str, Any], folder: Path) -> dict[str, str]:
    """What only both ranks together can see."""
    here = enter()
    job = _Job()
    wide, narrow = BATCHES[:1], [{"tokens": BATCHES[0]["tokens"][:, :8]}]
    return {
        "numbers": refusal(lambda: job.train(BATCHES[: here.dp.rank + 1])),
        "shapes": refusal(lambda: job.train(narrow if here.dp.rank else wide)),
        "equal": refusal(lambda: job.train(BATCHES)),
    }


def _building(job: _Job) -> Attempts:
    wrap, build, config = mcore_compat.wrap_data_parallel, mcore_compat.build_optimizer, mcore_compat.transformer_config

    def model(**choices: Any) -> list[Any]:
        return mcore_compat.gpt_model(config(**FIELDS), vocab_size=8, max_sequence_length=8, **choices)

    def optimizer(**settings: Any) -> Any:
        return build(OptimizerSettings(**settings), job.chunks)

    mistaken: Any = {"lr": "1e-6", "clip_grad": None, "sizes": "1"}
    return {
        "a module for chunks": lambda: wrap(small_gpt()[0]),
        "no chunks": lambda: wrap([]),
        "wrapped twice": lambda: wrap(job.chunks),
        "a dict for a config": lambda: wrap([Toy()], FIELDS),
        "swapped": lambda: build(job.chunks, SMOOTH),  # type: ignore[arg-type]
        "adamw": lambda: optimizer(optimizer="adamw"),
        "a text for a rate": lambda: optimizer(lr=mistaken["lr"]),
        "no clipping": lambda: optimizer(clip_grad=mistaken["clip_grad"]),
        "bf16 field": lambda: config(**FIELDS, bf16=True),
        "no fields": config,
        "head": lambda: model(head="critic"),
        "positions": lambda: model(position_embedding_type="absolute"),
        "spec": lambda: model(spec="native"),
        "a module for a provider": lambda: mcore_compat.build_model(torch.nn.Linear(1, 1)),
        "a provider of lists": lambda: mcore_compat.build_model(lambda: [Toy()]),
        "device": lambda: mcore_compat.prepare("cuda:0"),  # type: ignore[arg-type]
        "texts for sizes": lambda: mcore_compat.init_parallel(tp=mistaken["sizes"]),
        "upstream's names for sizes": lambda: mcore_compat.init_parallel(tensor_model_parallel_size=1),
    }


def _passes(job: _Job) -> Attempts:
    def cleared_by_half() -> None:
        job.train()
        job.optimizer.zero_grad()
        job.accumulate()

    def cleared_by_upstream() -> None:
        zero_grad.bind()(job.chunks[0], False)
        job.accumulate()

    return {
        "bare chunks": lambda: job.train(chunks=mcore_compat.unwrap(job.chunks)),
        "upstream's optimizer": lambda: job.train(optimizer=job.optimizer.inner),
        "another model's optimizer": lambda: job.train(optimizer=_Job().optimizer),
        "one batch": lambda: job.train(BATCHES[0]),
        "an iterator": lambda: job.train(iter(BATCHES)),
        "no tokens": lambda: job.train([{"input_ids": BATCHES[0]["tokens"]}]),
        "one row": lambda: job.train([{"tokens": torch.arange(LENGTH)}]),
        "not cleared": lambda: [job.train(), job.accumulate()],
        "cleared by half": cleared_by_half,
        "cleared by upstream": cleared_by_upstream,
    }


def _terms(job: _Job) -> Attempts:
    nan = float("nan")
    return {
        "a tensor for a term": lambda: job.train(whole=lambda term: term.sum),
        "a number for a count": lambda: job.train(count=30),
        "a loss per row": lambda: job.train(sum=torch.ones(2)),
        "a plain metric": lambda: job.train(metrics={"kl": torch.ones(())}),
        "metrics of some": lambda: job.train(named=lambda batch: str(batch["tokens"][0, 0].item())),
        "detached": lambda: job.train(sum=torch.ones(())),
        "count of nan": lambda: job.train(count=torch.tensor(nan)),
        "loss of nan": lambda: job.train(factor=nan),
        "a metric named loss": lambda: job.train(named=lambda batch: "loss"),
    }


def _weights(job: _Job, folder: Path) -> Attempts:
    weights, engine = mcore_compat.iter_weights, object()
    return {
        "buffers of bare chunks": lambda: mcore_compat.memory_buffers(small_gpt()),
        "names": lambda: weights(job.chunks, names="mcore"),  # type: ignore[arg-type]
        "bucket": lambda: weights(job.chunks, names="megatron", bucket_bytes=0),
        "a folder for an architecture": lambda: weights(job.chunks, str(folder)),  # type: ignore[arg-type]
        "no engine": lambda: mcore_compat.sync(job.chunks, engine, names="megatron"),  # type: ignore[arg-type]
        "an engine that stops": lambda: mcore_compat.sync(job.chunks, Lazy(), names="megatron"),  # type: ignore[arg-type]
        "guard of another model": lambda: UpdateGuard(_Job().chunks, job.optimizer),
        "bare state": lambda: mcore_compat.save_checkpoint(folder, job.chunks, step=1),  # type: ignore[arg-type]
        "step": lambda: _save(job, folder, step=1.5),
    }


def _offloaded(job: _Job, folder: Path) -> Attempts:
    """In this order: the last one brings everything back."""

    def offloaded_step() -> None:
        job.train()
        mcore_compat.offload(job.chunks, job.optimizer)
        job.optimizer.step()

    def reloaded() -> None:
        mcore_compat.reload(mcore_compat.unwrap(job.chunks))
        job.optimizer.step()
        job.train()

    return {
        "parts for an optimizer": lambda: mcore_compat.offload(job.chunks, ["params"]),
        "offloaded step": offloaded_step,
        "offloaded zero_grad": job.train,
        "offloaded pass": job.accumulate,
        "offloaded weights": lambda: mcore_compat.iter_weights(job.chunks, names="megatron"),
        "offloaded checkpoint": lambda: _save(job, folder, step=1),
        "reloaded": reloaded,
    }


def _save(job: _Job, folder: Path, step: Any) -> None:
    state = TrainState(job.chunks, job.optimizer)
    mcore_compat.save_checkpoint(folder.parent / "trapped", {"actor": state}, step=step)


def _term(logits: torch.Tensor, batch: Batch) -> LossTerm:
    targets = batch["tokens"][:, 1:]
    loss = torch.nn.functional.cross_entropy(logits[:, :-1].transpose(1, 2), targets % VOCAB, reduction="sum")
    return LossTerm(loss, torch.tensor(targets.numel()))


def _changed(
    term: LossTerm,
    batch: Batch,
    *,
    whole: Callable[[LossTerm], Any] = lambda term: term,
    named: Callable[[Batch], str] | None = None,
    factor: float = 1.0,
    **changes: Any,
) -> Any:
    """The term with some of it replaced."""
    metrics = {named(batch): (torch.ones(()), torch.ones(()))} if named is not None else {}
    return whole(LossTerm(**{"sum": term.sum * factor, "count": term.count, "metrics": metrics, **changes}))
