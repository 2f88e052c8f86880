"""What of a model is saved and restored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from mcore_compat.seams.optimizer import Optimizer


class Scheduler(Protocol):
    """A learning-rate schedule: Megatron's, torch's or your own."""

    def state_dict(self) -> dict[str, Any]:
        """Its state, as values that JSON can hold."""
        ...

    def load_state_dict(self, state_dict: dict[str, Any]) -> Any:
        """Take the state back."""
        ...


@dataclass(frozen=True)
class TrainState:
    """A model, and what belongs to its training.

    Attributes:
        chunks: Model chunks of this rank, wrapped or not.
        optimizer: From :func:`mcore_compat.build_optimizer`; ``None``: the weights only.
        scheduler: Its state is saved beside the optimizer's; ``None``: there is none.
        vocab_size: Real rows of the vocabulary where the embedding is padded; the padding, which depends on the
            layout, is then left out of the checkpoint. ``None``: no padding.
    """

    chunks: Sequence[Any]
    optimizer: Optimizer | None = None
    scheduler: Scheduler | None = None
    vocab_size: int | None = None


@dataclass(frozen=True)
class Restored:
    """What loading a checkpoint found.

    Attributes:
        step: Steps done when it was saved.
        state: What the caller gave to be kept.
        megatron: Release that saved it.
        same_layout: Whether it was saved in the present layout; only then random number generators are restored.
        folder: Of the checkpoint.
    """

    step: int
    state: Mapping[str, Any]
    megatron: str
    same_layout: bool
    folder: Path
