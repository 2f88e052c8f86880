"""A model of the backend: chunks of this rank, and the optimizer that updates them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcore_compat.bridge.ranks import collect_rows, rows_of_rank, split_rows
from mcore_compat.checks import UpdateGuard
from mcore_compat.contracts import Batch, Groups, LossFunction, OutputFunction, UpdateResult, VocabShard
from mcore_compat.errors import ConfigError

if TYPE_CHECKING:
    import torch

    from mcore_compat.checkpoint import TrainState
    from mcore_compat.seams.optimizer import Optimizer
    from mcore_compat.weights import Architecture


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
        self._guard = UpdateGuard(chunks, optimizer) if optimizer is not None else nullcontext()

    def evaluate(self, batch: Batch, micro_batch_size: int, output: OutputFunction) -> dict[str, torch.Tensor]:
        """Run without gradients, in evaluation mode; the tensors of ``output`` for all rows, on every rank."""
        from mcore_compat.seams.schedule import forward_only

        rows = len(next(iter(batch.values())))
        share = -(-rows // (self._groups.dp.size * micro_batch_size)) * micro_batch_size
        mine = rows_of_rank(batch, self._groups.dp.rank, share)
        with evaluation_mode(self.chunks):
            kept = forward_only(self.chunks, split_rows(mine, micro_batch_size), output)
        return collect_rows(kept, self._groups, rows)

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
        mine = rows_of_rank(batch, self._groups.dp.rank, rows // copies)
        zero_grad(self.chunks, optimizer)
        found = forward_backward(self.chunks, split_rows(mine, micro_batch_size), loss, optimizer=optimizer)
        with self._guard:
            step = optimizer.step()
        return UpdateResult(step, found.loss, found.metrics)

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

        return iter_weights(self.chunks, self._architecture, self._groups)

    def save_hf(self, folder: Path) -> None:
        """Write a complete Hugging Face folder (rank 0 writes; all ranks call)."""
        import torch.distributed as dist

        from mcore_compat.weights import save_hf

        save_hf(self.chunks, folder, self._folder, self._groups)
        dist.barrier()  # others may read the folder as soon as they return

    def train_state(self) -> TrainState:
        """What a checkpoint keeps of it."""
        from mcore_compat.checkpoint import TrainState

        return TrainState(self.chunks, self.optimizer, vocab_size=self._architecture.vocab_size)

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
