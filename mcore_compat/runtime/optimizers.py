"""Apex's optimizer constructors over torch's optimizers, fused where the device is CUDA.

Source of the signatures: NVIDIA/apex, ``apex/optimizers/fused_adam.py`` and ``fused_sgd.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from mcore_compat.errors import FeatureUnavailable
from mcore_compat.runtime.device import is_host


class FusedAdam(torch.optim.AdamW):
    """Adam with decoupled weight decay that counts steps per group, as Apex does.

    Megatron up to 0.9 stores ``step`` of the first group in checkpoints and restores only the moments, so a
    parameter's own step count is taken from its group where it is missing.

    Args:
        params: Parameters or groups.
        lr: Learning rate.
        bias_correction: Must be true.
        betas: Coefficients of the two moments.
        eps: Added to the root of the second moment.
        adam_w_mode: Must be true.
        weight_decay: Decoupled decay.
        amsgrad: Must be false.
        set_grad_none: Whether ``zero_grad`` drops gradients instead of zeroing them.

    Raises:
        FeatureUnavailable: A mode that torch's AdamW does not have.
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        bias_correction: bool = True,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        adam_w_mode: bool = True,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        set_grad_none: bool = True,
    ) -> None:
        _require(bias_correction=bias_correction, adam_w_mode=adam_w_mode, no_amsgrad=not amsgrad)
        super().__init__(params, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, fused=_fused())
        self.set_grad_none = set_grad_none
        for group in self.param_groups:
            group.setdefault("step", 0)

    def zero_grad(self, set_to_none: bool | None = None) -> None:
        """Clear gradients."""
        super().zero_grad(self.set_grad_none if set_to_none is None else set_to_none)

    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Update every parameter that has a gradient."""
        for group in self.param_groups:
            group["step"] = group.get("step", 0) + 1
        loss: float | None = super().step(closure)
        return loss

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a state; a parameter without a step count gets its group's."""
        steps = {index: group.get("step", 0) for group in state_dict["param_groups"] for index in group["params"]}
        state = {
            index: {"step": torch.tensor(float(steps[index])), **values} if values else values
            for index, values in state_dict["state"].items()
        }
        super().load_state_dict({**state_dict, "state": state})


class FusedSGD(torch.optim.SGD):
    """Stochastic gradient descent with momentum.

    Args:
        params: Parameters or groups.
        lr: Learning rate.
        momentum: Momentum factor.
        dampening: Dampening of the momentum.
        weight_decay: L2 penalty.
        nesterov: Nesterov momentum.
        wd_after_momentum: Must be false.
        set_grad_none: Whether ``zero_grad`` drops gradients instead of zeroing them.

    Raises:
        FeatureUnavailable: A mode that torch's SGD does not have.
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        wd_after_momentum: bool = False,
        set_grad_none: bool = False,
    ) -> None:
        _require(no_wd_after_momentum=not wd_after_momentum)
        super().__init__(params, lr, momentum, dampening, weight_decay, nesterov, fused=_fused())
        self.set_grad_none = set_grad_none

    def zero_grad(self, set_to_none: bool | None = None) -> None:
        """Clear gradients."""
        super().zero_grad(self.set_grad_none if set_to_none is None else set_to_none)


def _fused() -> bool | None:
    return True if torch.cuda.is_available() and not is_host() else None


def _require(**modes: bool) -> None:
    missing = [name for name, met in modes.items() if not met]
    if missing:
        raise FeatureUnavailable(
            f"torch's optimizers only do {', '.join(missing)}", hint="leave the default, or install apex"
        )
