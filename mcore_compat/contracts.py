"""Frozen value types and protocols of the stable API. Imports nothing from the package.

Shape suffixes used everywhere: R rows of a batch, T positions of a sequence, V vocabulary, H hidden. Every batch that
crosses these protocols is *global and replicated*: each rank holds all rows, and the backend picks the rows of its own
data-parallel rank. Reinforcement learning on top of it therefore reads like single-process code, and its result does
not depend on the layout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeVar

if TYPE_CHECKING:
    from pathlib import Path

    import torch
    from torch.distributed import ProcessGroup

# Names to tensors that all have the same number of rows.
Batch = Mapping[str, "torch.Tensor"]
ResultT = TypeVar("ResultT")
Precision = Literal["fp32", "bf16", "fp16"]
Head = Literal["lm", "value"]
ParameterCondition = Callable[[str, Any], bool]


@dataclass(frozen=True)
class ParallelLayout:
    """How the ranks of a job are split. ``dp`` follows: world size / (tp · pp · cp).

    Attributes:
        tp: Tensor-parallel size.
        pp: Pipeline-parallel size.
        vpp: Model chunks per pipeline rank (interleaved schedule); ``None`` or 1: one.
        cp: Context-parallel size.
        ep: Expert-parallel size, inside data parallelism.
        expert_tp: Tensor-parallel size of the experts; ``None``: ``tp``.
    """

    tp: int = 1
    pp: int = 1
    vpp: int | None = None
    cp: int = 1
    ep: int = 1
    expert_tp: int | None = None


@dataclass(frozen=True)
class Group:
    """One process group as this rank sees it."""

    handle: ProcessGroup
    rank: int
    size: int
    ranks: tuple[int, ...]


@dataclass(frozen=True)
class Groups:
    """The process groups this rank belongs to.

    ``dp`` is without, ``dp_cp`` with context parallelism; ``mp`` is tensor × pipeline; ``expert_dp`` the group over
    which expert gradients are averaged, and ``ep`` the group that holds different experts.
    """

    layout: ParallelLayout
    tp: Group
    pp: Group
    dp: Group
    dp_cp: Group
    cp: Group
    mp: Group
    ep: Group
    expert_dp: Group

    @property
    def is_first_stage(self) -> bool:
        """Whether this rank holds the embedding."""
        return self.pp.rank == 0

    @property
    def is_last_stage(self) -> bool:
        """Whether this rank holds the head."""
        return self.pp.rank == self.pp.size - 1


@dataclass(frozen=True)
class DataParallelSettings:
    """What the data-parallel wrapper does.

    Attributes:
        use_distributed_optimizer: Reduce-scatter gradients and shard the optimizer over data-parallel ranks.
        overlap_grad_reduce: Reduce each bucket as soon as its last gradient of the step is there.
        overlap_param_gather: Gather updated parameters during the next forward (needs both of the above).
        grad_reduce_in_fp32: Accumulate and reduce gradients in fp32.
        bucket_size: Parameters per bucket (elements); ``None``: upstream's default.
        disable_bucketing: One bucket only.
        check_for_nan_in_grad: Raise when a gradient is NaN before it is reduced.
        average_in_collective: Let the collective average instead of scaling beforehand.
        num_distributed_optimizer_instances: Replicas of the sharded optimizer.
        pad_buckets_for_high_nccl_busbw: Pad buckets to multiples of 2**16 elements; NCCL moves these faster.
    """

    use_distributed_optimizer: bool = False
    overlap_grad_reduce: bool = False
    overlap_param_gather: bool = False
    grad_reduce_in_fp32: bool = True
    bucket_size: int | None = None
    disable_bucketing: bool = False
    check_for_nan_in_grad: bool = False
    average_in_collective: bool = False
    num_distributed_optimizer_instances: int = 1
    pad_buckets_for_high_nccl_busbw: bool = False


@dataclass(frozen=True)
class OptimizerSettings:
    """What the optimizer does; the same meaning on every release.

    Attributes:
        optimizer: ``adam`` (decoupled weight decay) or ``sgd``.
        lr: Learning rate, until :meth:`Optimizer.set_lr` changes it.
        weight_decay: Decay of the parameters that decay.
        betas: Adam's coefficients.
        eps: Adam's epsilon.
        momentum: SGD's momentum.
        clip_grad: Largest global gradient norm; 0: no clipping (the norm is still reported).
        precision: ``fp32``; ``bf16`` and ``fp16`` keep fp32 main parameters.
        initial_loss_scale: fp16 dynamic scaling starts here.
        loss_scale: fp16 static scale instead of the dynamic one.
        log_num_zeros_in_grad: Count zero gradients (``StepResult.zeros``).
        no_weight_decay_cond: ``(name, parameter) -> bool``; default: biases and other 1-D parameters do not decay.
        scale_lr_cond: ``(name, parameter) -> bool``: whose learning rate is multiplied by ``lr_mult``.
        lr_mult: That multiplier; 0 keeps the parameter as it is.
    """

    optimizer: Literal["adam", "sgd"] = "adam"
    lr: float = 1e-5
    weight_decay: float = 0.01
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    momentum: float = 0.9
    clip_grad: float = 1.0
    precision: Precision = "fp32"
    initial_loss_scale: float = 2.0**16
    loss_scale: float | None = None
    log_num_zeros_in_grad: bool = False
    no_weight_decay_cond: ParameterCondition | None = None
    scale_lr_cond: ParameterCondition | None = None
    lr_mult: float = 1.0


class StepResult(NamedTuple):
    """What one optimizer step did.

    Attributes:
        updated: False when fp16 overflowed and the step was skipped.
        grad_norm: Global gradient norm before clipping (``None`` only when the step was skipped).
        zeros: Number of zero gradients, where asked for.
        notices: Machine-readable causes of a step that may surprise: ``lr_zero``.
    """

    updated: bool
    grad_norm: float | None
    zeros: int | None
    notices: tuple[str, ...] = ()


@dataclass(frozen=True)
class LossTerm:
    """A loss over one microbatch, as a sum and what it is a sum over.

    Attributes:
        sum: Scalar tensor with gradient.
        count: Scalar tensor: how many tokens (or rows) the sum runs over.
        metrics: Name to (sum, count) scalars; reported as global means.
    """

    sum: torch.Tensor
    count: torch.Tensor
    metrics: Mapping[str, tuple[torch.Tensor, torch.Tensor]] = field(default_factory=dict)


# (output of the last stage, microbatch) -> loss. The output is [R, T, V/tp] fp32 logits or [R, T] fp32 values.
LossFunction = Callable[["torch.Tensor", "Batch"], LossTerm]
# (output of the last stage, microbatch) -> tensors with R rows, kept per row.
OutputFunction = Callable[["torch.Tensor", "Batch"], Mapping[str, "torch.Tensor"]]


@dataclass(frozen=True)
class VocabShard:
    """The slice of the vocabulary that this rank's logits cover.

    Attributes:
        start: First vocabulary index of the local logits.
        stop: One past the last one, padding included.
        size: Number of real vocabulary entries; indices from here on are padding.
        group: Tensor-parallel group, ``None`` when its size is 1.
    """

    start: int
    stop: int
    size: int
    group: ProcessGroup | None = None


class UpdateResult(NamedTuple):
    """One accumulated gradient step: the optimizer's result and global means of the loss's metrics."""

    step: StepResult
    loss: float
    metrics: Mapping[str, float]


@dataclass(frozen=True)
class LoadReport:
    """What loading a folder did.

    Attributes:
        loaded: Megatron parameter names that were filled.
        newly_initialized: Names with no source in the folder, left as initialised (the value head).
        unexpected: Names of the folder that the model does not use.
    """

    loaded: tuple[str, ...] = ()
    newly_initialized: tuple[str, ...] = ()
    unexpected: tuple[str, ...] = ()


class EvaluatedModel(Protocol):
    """A model that can be evaluated: the frozen reference, or an actor or critic between updates."""

    def evaluate(self, batch: Batch, micro_batch_size: int, output: OutputFunction) -> dict[str, torch.Tensor]:
        """Run without gradients, in evaluation mode (every module's mode is put back, also after an error).

        Args:
            batch: Global, replicated; ``tokens`` [R, T] int64, right-padded, plus whatever ``output`` reads.
            micro_batch_size: Rows per forward pass of one data-parallel rank.
            output: Applied on the last stage to each microbatch.

        Returns:
            The tensors of ``output`` for all R rows in the given order, on every rank.
        """
        ...

    def stream(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield full tensors under Hugging Face names, on every rank."""
        ...


class TrainableModel(EvaluatedModel, Protocol):
    """An actor or critic with its optimizer."""

    def update(self, batch: Batch, micro_batch_size: int, loss: LossFunction) -> UpdateResult:
        """One optimizer step on the true mean Σ sum / Σ count over all rows of the global batch."""
        ...

    def set_lr(self, lr: float) -> None:
        """Set the learning rate of the next step; ``lr_mult`` still applies."""
        ...

    def save_hf(self, folder: Path) -> None:
        """Write a complete Hugging Face folder (rank 0 writes; all ranks call)."""
        ...


class TrainingBackend(Protocol):
    """What reinforcement learning needs from a training engine. Injected, never imported, by ``rl``."""

    @property
    def release(self) -> str:
        """Version of the engine, for reports."""
        ...

    @property
    def rank(self) -> int:
        """Global rank."""
        ...

    @property
    def data_parallel(self) -> tuple[int, int]:
        """(rank, size) of data parallelism."""
        ...

    @property
    def device(self) -> torch.device:
        """Where tensors live."""
        ...

    @property
    def vocab(self) -> VocabShard:
        """The vocabulary slice of the actor's and the reference's logits."""
        ...

    def actor(self, folder: Path, settings: OptimizerSettings) -> TrainableModel:
        """A language model with an optimizer."""
        ...

    def critic(self, folder: Path, settings: OptimizerSettings) -> TrainableModel:
        """The same body with a value head, newly initialised where the folder has none."""
        ...

    def reference(self, folder: Path) -> EvaluatedModel:
        """A frozen language model, prepared in the actor's precision."""
        ...

    def save_checkpoint(
        self,
        folder: Path,
        models: Mapping[str, TrainableModel],
        *,
        step: int,
        state: Mapping[str, Any],
        keep: int | None = None,
    ) -> None:
        """Add one to a folder of checkpoints, as :func:`mcore_compat.save_checkpoint` does; models by role."""
        ...

    def load_checkpoint(
        self, folder: Path, models: Mapping[str, TrainableModel], *, fresh_optimizer: Sequence[str] = ()
    ) -> tuple[int, Mapping[str, Any]]:
        """Restore as :func:`mcore_compat.load_checkpoint` does; returns (step, state)."""
        ...

    def on_rank_zero(self, work: Callable[[], ResultT]) -> ResultT:
        """Run on rank 0 and give everybody its result, or raise its error everywhere."""
        ...

    def each_data_parallel_rank(self, work: Callable[[int, int], Sequence[ResultT]]) -> list[ResultT]:
        """Run ``work(dp_rank, dp_size)`` once per data-parallel rank and give everybody the results in rank order.

        An error of any rank is raised on all of them.
        """
        ...


class RolloutEngine(Protocol):
    """Generates responses with weights that were streamed to it."""

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Take new weights under Hugging Face names."""
        ...

    def generate(self, prompts: Sequence[Sequence[int]], sampling: Sampling, keys: Sequence[int]) -> list[list[int]]:
        """Return the response token ids of each prompt, including the end token where one was produced.

        Args:
            prompts: Token ids, any lengths.
            sampling: How to sample.
            keys: One integer per prompt; the same key, weights and prompt give the same response, whatever else is in
                the call, so results do not depend on how prompts are split over ranks.
        """
        ...


@dataclass(frozen=True)
class Sampling:
    """How responses are drawn.

    Attributes:
        max_tokens: Most new tokens.
        temperature: 0 is greedy.
        top_k: Draw from that many likeliest tokens; 0: from all.
        top_p: Draw from the likeliest tokens that hold this probability; 1: from all.
    """

    max_tokens: int
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0


@dataclass(frozen=True)
class Choice:
    """Which variant of a seam was chosen, and why (``explain()`` and ``doctor`` print these)."""

    seam: str
    variant: str
    since: str
    why: str
    module: str = field(default="", compare=False)
