"""The optimizer as callers see it: the same arguments, results and meaning on every release."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mcore_compat.contracts import DataParallelSettings, OptimizerSettings, StepResult
from mcore_compat.seams._memory import require_here
from mcore_compat.seams.flat_buffers._aliasing import AliasCheck
from mcore_compat.seams.optimizer._main_params import MainParameterCheck
from mcore_compat.seams.optimizer._tied import check_tied_copies
from mcore_compat.seams.param_sync import seam as param_sync
from mcore_compat.seams.param_sync import settled_by


class Optimizer:
    """One optimizer over the chunks of this rank.

    Attributes:
        inner: What upstream (or this package, where upstream has none) built.
        settings: What was asked for.
        chunks: Whose parameters it updates.
        keeps_params_in_grad_buffer: True for the distributed optimizer of the 0.4 and 0.5 repositories, which gathers
            parameters in the gradient buffer.
        scales_loss: Whether the loss has to be scaled before the backward pass.
    """

    def __init__(
        self,
        inner: Any,
        settings: OptimizerSettings,
        chunks: Sequence[Any],
        data_parallel: DataParallelSettings,
    ) -> None:
        self.inner = inner
        self.settings = settings
        self.data_parallel = data_parallel
        self.keeps_params_in_grad_buffer: bool = getattr(inner, "keeps_params_in_grad_buffer", False)
        self.chunks = chunks
        self.scales_loss = settings.precision == "fp16" or settings.loss_scale is not None
        self._check_aliases = AliasCheck(chunks)
        self._check_main_params = MainParameterCheck(inner, chunks)
        for group in self.param_groups:  # upstream leaves this to its scheduler, and without one everything decays
            group["weight_decay"] = settings.weight_decay * group.get("wd_mult", 1.0)
        self.set_lr(settings.lr)
        settled_by(chunks, self)

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """Live parameter groups: ``params``, ``lr``, ``lr_mult``, ``weight_decay``, ``wd_mult``."""
        groups: list[dict[str, Any]] = self.inner.param_groups
        return groups

    def set_lr(self, lr: float) -> None:
        """Set the learning rate of the next step; parameters under ``scale_lr_cond`` get ``lr * lr_mult``."""
        for group in self.param_groups:
            group["lr"] = lr * group.get("lr_mult", 1.0)

    def step(self) -> StepResult:
        """Clip and apply the gradients in the buffers.

        Returns:
            What happened; ``grad_norm`` is the norm before clipping, also with clipping off.

        Raises:
            ConfigError: Something that it needs is offloaded.
            StaleParameter: The two copies of a tied embedding (first and last stage) differ, the fp32 main parameters
                are not those of the model's weights, or a parameter left the wrapper's buffer.
        """
        require_here(self.chunks, "a step", "params", "grads", "optimizer")
        check_tied_copies(self.chunks)
        self._check_aliases()
        self._check_main_params()
        updated, norm, zeros = self.inner.step()
        return StepResult(
            updated=bool(updated),
            grad_norm=None if norm is None else float(norm),
            zeros=int(zeros) if self.settings.log_num_zeros_in_grad and zeros is not None else None,
            notices=() if any(group["lr"] for group in self.param_groups) else ("lr_zero",),
        )

    def zero_grad(self) -> None:
        """Clear ``.grad``; use :func:`mcore_compat.zero_grad`, which also clears the gradient buffers."""
        self.inner.zero_grad()

    def scale_loss(self, loss: Any) -> Any:
        """The loss times the loss scale (1 except in fp16)."""
        return self.inner.scale_loss(loss)

    def reload_model_params(self) -> None:
        """Copy the model's weights into the fp32 main parameters; needed after weights were loaded."""
        self.inner.reload_model_params()

    def finish_param_sync(self) -> None:
        """Wait until the model holds the values of the last step on every rank (``overlap_param_gather``)."""
        if self.data_parallel.overlap_param_gather:
            param_sync.bind()().finish(self.chunks, self.inner)
