"""How far a run has come: saved beside its models, and taken up again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from mcore_compat.rl.run_folder import CHECKPOINTS, resumed_from

if TYPE_CHECKING:
    from mcore_compat.contracts import TrainableModel, TrainingBackend
    from mcore_compat.rl.config import TrainerConfig
    from mcore_compat.rl.kl import KLController


class Progress:
    """The state of the loop. Learning rates, prompts and sampling seeds follow from the number of steps.

    Args:
        settings: When to save, and what to go on from.
        backend: Writes and reads the models.
        models: By role.
        order: Generator of the mini-batches.
        kl_control: Weight of the KL in the reward.

    Attributes:
        step: PPO steps done.
        score_before: Validation score before the first one.
    """

    def __init__(
        self,
        settings: TrainerConfig,
        backend: TrainingBackend,
        models: Mapping[str, TrainableModel],
        order: torch.Generator,
        kl_control: KLController,
    ) -> None:
        self.step = 0
        self.score_before: float | None = None
        self._settings, self._backend, self._models = settings, backend, models
        self._order, self._kl_control = order, kl_control

    def restore(self, folder: Path) -> bool:
        """Go on where the settings say; whether there was something to go on from.

        Args:
            folder: Run folder.

        Raises:
            CheckpointError: The checkpoint is damaged, incomplete, or of other models.
        """
        source = self._backend.on_rank_zero(lambda: resumed_from(self._settings, folder))
        if source is None:
            return False
        fresh = self._settings.resume_fresh_optimizer
        self.step, state = self._backend.load_checkpoint(source, self._models, fresh_optimizer=fresh)
        self.score_before, self._kl_control.coef = state["score_before"], state["kl_coef"]
        self._order.set_state(torch.tensor(list(bytes.fromhex(state["order"])), dtype=torch.uint8))
        return True

    def done(self, step: int, folder: Path, *, last: bool) -> None:
        """Take note that a step is done, and save where that is due.

        Args:
            step: Its number, from 0.
            folder: Run folder.
            last: Whether the run ends here.
        """
        self.step = step + 1
        every = self._settings.save_freq
        if every < 1 or (self.step % every and not last):
            return
        state = {
            "score_before": self.score_before,
            "kl_coef": self._kl_control.coef,
            "order": bytes(self._order.get_state().tolist()).hex(),
        }
        keep = self._settings.max_ckpt_to_keep
        self._backend.save_checkpoint(folder / CHECKPOINTS, self._models, step=self.step, state=state, keep=keep)
