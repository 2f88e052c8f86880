"""Loss scaling for fp16: static, or halved after overflows and doubled after a quiet while."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from mcore_compat.contracts import OptimizerSettings

# The numbers that Megatron's dynamic scaler has in every release.
_HYSTERESIS = 2
_GROWTH_INTERVAL = 1000
_SMALLEST = 1.0


class LossScale:
    """The factor on the loss (Micikevicius et al. 2018, section 3.2).

    Attributes:
        active: Whether gradients have to be unscaled and checked.
        value: The factor now.
    """

    def __init__(self, settings: OptimizerSettings) -> None:
        self.active = settings.precision == "fp16" or settings.loss_scale is not None
        self._dynamic = settings.loss_scale is None
        initial = settings.initial_loss_scale if self._dynamic else settings.loss_scale
        self.value = float(initial or 1.0) if self.active else 1.0
        self._patience = _HYSTERESIS
        self._quiet = 0

    def overflowed(
        self, gradients: Sequence[torch.Tensor], all_reduce: Callable[[torch.Tensor, Any], torch.Tensor]
    ) -> bool:
        """Whether any rank has an infinite or undefined gradient; adapts the scale."""
        device = gradients[0].device if gradients else torch.device("cpu")
        found = torch.zeros((), device=device)
        for gradient in gradients:
            found = torch.maximum(found, (~torch.isfinite(gradient)).any().float())
        overflow = bool(all_reduce(found, dist.ReduceOp.MAX).item())
        if self._dynamic:
            self._adapt(overflow)
        return overflow

    def state_dict(self) -> dict[str, Any]:
        """What changes over time, under upstream's names; empty for a scale that stays."""
        if not (self.active and self._dynamic):
            return {}
        scale = torch.tensor([self.value])
        return {"scale": scale, "growth_tracker": self._quiet, "hysteresis_tracker": self._patience}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take :meth:`state_dict` back."""
        self.value = float(state["scale"])
        self._quiet, self._patience = state["growth_tracker"], state["hysteresis_tracker"]

    def _adapt(self, overflow: bool) -> None:
        if overflow:
            self._quiet = 0
            self._patience -= 1
            if self._patience <= 0:
                self.value = max(self.value * 0.5, _SMALLEST)
            return
        self._quiet += 1
        if self._quiet == _GROWTH_INTERVAL:
            self._quiet, self._patience = 0, _HYSTERESIS
            self.value *= 2.0
