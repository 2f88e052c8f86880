"""Composes seams and weights into the backend that ``rl`` is written against."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from mcore_compat.bridge.model import MegatronModel
from mcore_compat.bridge.ranks import attempt, result
from mcore_compat.contracts import (
    DataParallelSettings,
    Groups,
    Head,
    OptimizerSettings,
    ParallelLayout,
    Precision,
    ResultT,
    TrainableModel,
    VocabShard,
)
from mcore_compat.detect import find
from mcore_compat.errors import ConfigError
from mcore_compat.runtime import prepare

if TYPE_CHECKING:
    import torch

    from mcore_compat.checkpoint import TrainState
    from mcore_compat.weights import Architecture

__all__ = ["MegatronBackend", "MegatronModel"]


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

    def save_checkpoint(
        self,
        folder: Path,
        models: Mapping[str, TrainableModel],
        *,
        step: int,
        state: Mapping[str, Any],
        keep: int | None = None,
    ) -> None:
        """Add a checkpoint to a folder of them, whole or not at all; all ranks call."""
        from mcore_compat.checkpoint import save

        save(folder, _train_states(models), step=step, state=state, keep=keep)

    def load_checkpoint(
        self, folder: Path, models: Mapping[str, TrainableModel], *, fresh_optimizer: Sequence[str] = ()
    ) -> tuple[int, Mapping[str, Any]]:
        """Restore from the newest checkpoint of a folder, or from one checkpoint; returns (step, state)."""
        from mcore_compat.checkpoint import load

        found = load(folder, _train_states(models), fresh_optimizer=fresh_optimizer)
        return found.step, found.state

    def on_rank_zero(self, work: Callable[[], ResultT]) -> ResultT:
        """Run on rank 0 and give everybody its result, or raise its error everywhere."""
        import torch.distributed as dist

        box = [attempt(work)] if self.rank == 0 else [None]
        mine = box[0]
        dist.broadcast_object_list(box, src=0)
        found: ResultT = result(mine or box[0])
        return found

    def each_data_parallel_rank(self, work: Callable[[int, int], Sequence[ResultT]]) -> list[ResultT]:
        """Run ``work(dp_rank, dp_size)`` once per data-parallel rank; everybody gets the results in rank order."""
        import torch.distributed as dist

        rank, size = self.data_parallel
        mine = attempt(lambda: work(rank, size)) if self.groups.mp.rank == 0 else None
        gathered: list[tuple[int, Any]] = [(0, None)] * dist.get_world_size()
        dist.all_gather_object(gathered, (rank, mine))
        if mine is not None:
            result(mine)
        parts = {owner: result(outcome) for owner, outcome in gathered if outcome is not None}
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


def _train_states(models: Mapping[str, TrainableModel]) -> dict[str, TrainState]:
    ours = {role: model for role, model in models.items() if isinstance(model, MegatronModel)}
    if len(ours) < len(models):
        raise ConfigError("only models of this backend can be saved", hint="pass what actor() and critic() returned")
    return {role: model.train_state() for role, model in ours.items()}


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
