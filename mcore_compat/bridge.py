"""Composes seams and weights into the backend that ``rl`` is written against."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from mcore_compat.contracts import (
    Batch,
    DataParallelSettings,
    Groups,
    Head,
    LossFunction,
    OptimizerSettings,
    OutputFunction,
    ParallelLayout,
    Precision,
    ResultT,
    UpdateResult,
    VocabShard,
)
from mcore_compat.detect import find
from mcore_compat.errors import ConfigError, McoreCompatError, PeerLost
from mcore_compat.runtime import prepare

if TYPE_CHECKING:
    import torch

    from mcore_compat.seams.optimizer import Optimizer
    from mcore_compat.weights import Architecture


class MegatronBackend:
    """Megatron as a training backend: models from Hugging Face folders, updated on the ranks of this job.

    Args:
        layout: How the ranks are split.
        device: ``auto``, ``cpu`` or ``cuda``; see :func:`mcore_compat.prepare`.
        precision: Of parameters and activations; actor, critic and reference are prepared alike.
        seed: For everything that is drawn, such as the critic's head.
        sequence_parallel: Split activations along the sequence between tensor-parallel regions.
        data_parallel: What the data-parallel wrapper does.
        model_config: Further fields of ``TransformerConfig``, under their newest names.
        vocab_multiple: The vocabulary is padded to a multiple of this times ``tp``.

    Raises:
        ConfigError: Context or expert parallelism, which dense models on the local layer specification cannot use.
    """

    def __init__(
        self,
        layout: ParallelLayout | None = None,
        *,
        device: Literal["auto", "cpu", "cuda"] = "auto",
        precision: Precision = "fp32",
        seed: int = 0,
        sequence_parallel: bool = False,
        data_parallel: DataParallelSettings | None = None,
        model_config: Mapping[str, Any] | None = None,
        vocab_multiple: int = 8,
    ) -> None:
        layout = layout or ParallelLayout()
        if layout.cp > 1 or layout.ep > 1:
            raise ConfigError(
                f"this backend trains dense models with cp 1 and ep 1, found cp {layout.cp}, ep {layout.ep}"
            )
        prepare(device)
        from mcore_compat.seams.parallel import init_parallel

        self.groups = init_parallel(layout.tp, layout.pp, layout.vpp)
        self._precision: Precision = precision
        self._seed = seed
        self._data_parallel = data_parallel or DataParallelSettings()
        self._model_config = {
            "sequence_parallel": sequence_parallel and layout.tp > 1,
            **(model_config or {}),
        }
        self._vocab_multiple = vocab_multiple * layout.tp
        self._vocab: VocabShard | None = None

    @property
    def release(self) -> str:
        """The version that Megatron claims."""
        return find().version or "unknown"

    @property
    def rank(self) -> int:
        """Global rank."""
        import torch.distributed as dist

        return dist.get_rank()

    @property
    def data_parallel(self) -> tuple[int, int]:
        """(rank, size) of data parallelism."""
        return self.groups.dp.rank, self.groups.dp.size

    @property
    def device(self) -> torch.device:
        """Where tensors live."""
        from mcore_compat.runtime.device import device

        return device()

    @property
    def vocab(self) -> VocabShard:
        """The slice of the vocabulary that this rank's logits cover; known once a language model was built."""
        if self._vocab is None:
            raise ConfigError("no language model yet", hint="build the actor or the reference first")
        return self._vocab

    def actor(self, folder: Path, settings: OptimizerSettings) -> MegatronModel:
        """A language model with an optimizer."""
        return self._trainable(folder, "lm", settings)

    def critic(self, folder: Path, settings: OptimizerSettings) -> MegatronModel:
        """The same body with a value head, newly initialised where the folder has none."""
        return self._trainable(folder, "value", settings)

    def reference(self, folder: Path) -> MegatronModel:
        """A frozen language model, prepared in the actor's precision."""
        chunks, architecture = self._load(folder, "lm")
        for chunk in chunks:
            chunk.requires_grad_(False).eval()
        return MegatronModel(self.groups, chunks, architecture, folder, self.vocab)

    def on_rank_zero(self, work: Callable[[], ResultT]) -> ResultT:
        """Run on rank 0 and give everybody its result, or raise its error everywhere."""
        import torch.distributed as dist

        box = [_attempt(work)] if self.rank == 0 else [None]
        mine = box[0]
        dist.broadcast_object_list(box, src=0)
        result: ResultT = _result(mine or box[0])
        return result

    def each_data_parallel_rank(self, work: Callable[[int, int], Sequence[ResultT]]) -> list[ResultT]:
        """Run ``work(dp_rank, dp_size)`` once per data-parallel rank; everybody gets the results in rank order."""
        import torch.distributed as dist

        rank, size = self.data_parallel
        mine = _attempt(lambda: work(rank, size)) if self.groups.mp.rank == 0 else None
        gathered: list[tuple[int, Any]] = [(0, None)] * dist.get_world_size()
        dist.all_gather_object(gathered, (rank, mine))
        if mine is not None:
            _result(mine)
        parts = {owner: _result(outcome) for owner, outcome in gathered if outcome is not None}
        return [item for part in range(size) for item in parts[part]]

    def _trainable(self, folder: Path, head: Head, settings: OptimizerSettings) -> MegatronModel:
        from mcore_compat.seams.data_parallel import wrap_data_parallel
        from mcore_compat.seams.optimizer import build_optimizer

        chunks, architecture = self._load(folder, head)
        wrapped = wrap_data_parallel(chunks, settings=self._data_parallel)
        optimizer = build_optimizer(settings, wrapped, self._data_parallel)
        if head == "lm":
            _warn_of_dropout(wrapped)
        vocab = self._vocab if head == "lm" else None
        return MegatronModel(self.groups, wrapped, architecture, folder, vocab, optimizer)

    def _load(self, folder: Path, head: Head) -> tuple[list[Any], Architecture]:
        from mcore_compat.seams.config import transformer_config
        from mcore_compat.seams.model import gpt_model
        from mcore_compat.seams.rng import seed
        from mcore_compat.weights import inverse_frequencies, load_hf, read_architecture

        architecture = read_architecture(folder)
        # Every weight comes from the folder, so drawing initial ones would be wasted time.
        fields = {**architecture.config_fields(), "perform_initialization": False, **self._model_config}
        seed(self._seed)
        padded = -(-architecture.vocab_size // self._vocab_multiple) * self._vocab_multiple
        chunks = gpt_model(
            transformer_config(precision=self._precision, **fields),
            vocab_size=padded,
            max_sequence_length=architecture.max_positions,
            head=head,
            share_embeddings=architecture.tied,
            rotary_base=architecture.rope_theta,
            inverse_frequencies=inverse_frequencies(architecture),
        )
        load_hf(folder, chunks, self.groups)
        if head == "lm":
            self._vocab = _vocab_shard(self.groups, architecture.vocab_size, padded)
        return chunks, architecture


class MegatronModel:
    """A model of the backend: the actor or critic with an optimizer, or the frozen reference without."""

    def __init__(
        self,
        groups: Groups,
        chunks: list[Any],
        architecture: Architecture,
        folder: Path,
        vocab: VocabShard | None,
        optimizer: Optimizer | None = None,
    ) -> None:
        self.chunks = chunks
        self.optimizer = optimizer
        self._groups = groups
        self._architecture = architecture
        self._folder = folder
        self._vocab = vocab

    def evaluate(self, batch: Batch, micro_batch_size: int, output: OutputFunction) -> dict[str, torch.Tensor]:
        """Run without gradients, in evaluation mode; the tensors of ``output`` for all rows, on every rank."""
        from mcore_compat.seams.schedule import forward_only

        rows = len(next(iter(batch.values())))
        share = -(-rows // (self._groups.dp.size * micro_batch_size)) * micro_batch_size
        mine = _rows_of_rank(batch, self._groups.dp.rank, share)
        with evaluation_mode(self.chunks):
            kept = forward_only(self.chunks, _split(mine, micro_batch_size), output)
        return _collect(kept, self._groups, rows)

    def update(self, batch: Batch, micro_batch_size: int, loss: LossFunction) -> UpdateResult:
        """One optimizer step on the true mean over all rows of the global batch."""
        from mcore_compat.seams.data_parallel import zero_grad
        from mcore_compat.seams.schedule import forward_backward

        rows, copies = len(next(iter(batch.values()))), self._groups.dp.size
        if rows % (copies * micro_batch_size):
            raise ConfigError(
                f"{rows} rows cannot be split over {copies} data-parallel ranks in microbatches of {micro_batch_size}",
                hint="choose a mini-batch size divisible by both",
            )
        optimizer = self._require_optimizer()
        mine = _rows_of_rank(batch, self._groups.dp.rank, rows // copies)
        zero_grad(self.chunks, optimizer)
        found = forward_backward(self.chunks, _split(mine, micro_batch_size), loss, optimizer=optimizer)
        return UpdateResult(optimizer.step(), found.loss, found.metrics)

    def __call__(self, batch: Batch) -> torch.Tensor:
        """Log-probabilities [R, T - 1] of the tokens from the second on, in evaluation mode; on every rank."""
        from mcore_compat.rl.logprobs import logprobs_and_entropy

        vocab = self._vocab
        if vocab is None:
            raise ConfigError("this model has no vocabulary head", hint="ask the actor or the reference")

        def output(logits: torch.Tensor, microbatch: Batch) -> dict[str, torch.Tensor]:
            targets = microbatch["tokens"][:, 1:]
            return {"logprob": logprobs_and_entropy(logits[:, :-1], targets, vocab, entropy=False)[0]}

        return self.evaluate(batch, len(batch["tokens"]), output)["logprob"]

    def named_parameters(self) -> Iterator[tuple[str, torch.nn.Parameter]]:
        """This rank's parameters under the names of the innermost modules."""
        from mcore_compat.seams.model import unwrap

        for index, model in enumerate(unwrap(self.chunks)):
            for name, parameter in model.named_parameters():
                yield (name if len(self.chunks) == 1 else f"{index}.{name}"), parameter

    def set_lr(self, lr: float) -> None:
        """Set the learning rate of the next step."""
        self._require_optimizer().set_lr(lr)

    def stream(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield full tensors under Hugging Face names, on every rank, as of the last step."""
        from mcore_compat.weights import iter_weights

        self._settle()
        return iter_weights(self.chunks, self._architecture, self._groups)

    def save_hf(self, folder: Path) -> None:
        """Write a complete Hugging Face folder (rank 0 writes; all ranks call)."""
        import torch.distributed as dist

        from mcore_compat.weights import save_hf

        self._settle()
        save_hf(self.chunks, folder, self._folder, self._groups)
        dist.barrier()  # others may read the folder as soon as they return

    def _settle(self) -> None:
        if self.optimizer is not None:
            self.optimizer.finish_param_sync()

    def _require_optimizer(self) -> Optimizer:
        if self.optimizer is None:
            raise ConfigError("the reference is frozen and cannot be updated", hint="build an actor or a critic")
        return self.optimizer


@contextmanager
def evaluation_mode(chunks: Sequence[Any]) -> Iterator[None]:
    """Evaluation mode for every submodule; each one's own mode is put back, also after an error."""
    modes = [(module, module.training) for chunk in chunks for module in chunk.modules()]
    for chunk in chunks:
        chunk.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


def _warn_of_dropout(chunks: Sequence[Any]) -> None:
    from mcore_compat.seams.config import get_model_config

    config = get_model_config(chunks)
    if config.hidden_dropout or config.attention_dropout:
        warnings.warn(
            f"hidden_dropout {config.hidden_dropout} and attention_dropout {config.attention_dropout} are active in "
            "updates: the policy that is trained is not the one that generated; PPO usually runs with 0",
            stacklevel=4,
        )


def _vocab_shard(groups: Groups, size: int, padded: int) -> VocabShard:
    rows = padded // groups.tp.size
    start = groups.tp.rank * rows
    return VocabShard(start, start + rows, size, groups.tp.handle if groups.tp.size > 1 else None)


def _rows_of_rank(batch: Batch, rank: int, share: int) -> Batch:
    """``share`` rows from ``rank * share`` on; rows past the end repeat the first one."""
    import torch

    rows = len(next(iter(batch.values())))
    index = torch.arange(rank * share, (rank + 1) * share)
    index[index >= rows] = 0
    return {name: tensor[index.to(tensor.device)] for name, tensor in batch.items()}


def _split(batch: Batch, micro_batch_size: int) -> list[Batch]:
    rows = len(next(iter(batch.values())))
    return [
        {name: tensor[start : start + micro_batch_size] for name, tensor in batch.items()}
        for start in range(0, rows, micro_batch_size)
    ]


def _collect(kept: Sequence[Mapping[str, torch.Tensor]], groups: Groups, rows: int) -> dict[str, torch.Tensor]:
    """Last stage's rows of this data-parallel rank -> all rows on every rank."""
    import torch
    import torch.distributed as dist

    local = {name: torch.cat([part[name] for part in kept]) for name in kept[0]} if kept else {}
    box = [{name: (tensor.shape, tensor.dtype) for name, tensor in local.items()}]
    if groups.pp.size > 1:
        dist.broadcast_object_list(box, src=groups.pp.ranks[-1], group=groups.pp.handle)
    found = {}
    for name, (shape, dtype) in box[0].items():
        tensor = local[name].contiguous() if name in local else _empty(shape, dtype)
        if groups.pp.size > 1:
            dist.broadcast(tensor, src=groups.pp.ranks[-1], group=groups.pp.handle)
        parts = [torch.empty_like(tensor) for _ in range(groups.dp.size)]
        dist.all_gather(parts, tensor, group=groups.dp.handle)
        found[name] = torch.cat(parts)[:rows]
    return found


def _empty(shape: torch.Size, dtype: torch.dtype) -> torch.Tensor:
    import torch

    from mcore_compat.runtime.device import device

    return torch.empty(shape, dtype=dtype, device=device())


class _Outcome:
    """A result or an error, in a form that can travel to other ranks."""

    def __init__(self, value: Any = None, error: Exception | None = None) -> None:
        self.value = value
        self.error = error

    def __reduce__(self) -> tuple[Any, ...]:
        foreign = self.error is not None and not isinstance(self.error, McoreCompatError)
        error = PeerLost(f"another rank failed: {type(self.error).__name__}: {self.error}") if foreign else self.error
        return _Outcome, (self.value, error)


def _attempt(work: Callable[[], Any]) -> _Outcome:
    try:
        return _Outcome(value=work())
    except Exception as error:  # crosses ranks as a value, and is raised on all of them
        return _Outcome(error=error)


def _result(outcome: _Outcome | None) -> Any:
    assert outcome is not None, "some rank has always done the work"
    if outcome.error is not None:
        raise outcome.error
    return outcome.value
