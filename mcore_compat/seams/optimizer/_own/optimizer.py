"""The optimizer itself; its methods are those that :class:`Optimizer` calls on upstream's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from mcore_compat.contracts import OptimizerSettings
from mcore_compat.runtime.device import device
from mcore_compat.seams.optimizer._groups import clip_bound, decays_not, on_plain_names
from mcore_compat.seams.optimizer._own.loss_scale import LossScale
from mcore_compat.seams.optimizer._own.segments import Segment, buckets, segments
from mcore_compat.seams.parallel import groups

_CLIP_EPSILON = 1e-6  # keeps the factor finite for a zero norm; the same number as in all later releases


class BufferOptimizer:
    """Adam or SGD on fp32 main parameters.

    Args:
        settings: What it does.
        chunks: Wrapped chunks; gradients are read from their buffers.
        sharded: Each data-parallel rank updates its slice of each bucket, and the slices are gathered afterwards.

    Attributes:
        optimizer: torch's, which does the update; named as in upstream's optimizers, as is ``grad_scaler``.
        grad_scaler: The factor on the loss.
    """

    def __init__(self, settings: OptimizerSettings, chunks: Sequence[Any], *, sharded: bool) -> None:
        self._settings = settings
        self._groups = groups()
        by_group = _grouped(settings, list(segments(chunks, self._groups, sharded=sharded)), sharded=sharded)
        self._segments = [segment for owned in by_group.values() for segment in owned]
        self._buckets = list(buckets(chunks, self._groups)) if sharded else []
        self._reduce_over = [self._groups.mp, *([self._groups.dp_cp] if sharded else [])]
        self.grad_scaler = LossScale(settings)
        self.optimizer = _torch_optimizer(settings, by_group)

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """Live parameter groups of the torch optimizer."""
        groups_: list[dict[str, Any]] = self.optimizer.param_groups
        return groups_

    @property
    def model_float16_groups(self) -> list[list[torch.nn.Parameter]]:
        """Parameters that have an fp32 copy, as upstream's optimizers name them."""
        return [[segment.parameter for segment in self._copied()]]

    @property
    def shard_float16_groups(self) -> list[list[torch.Tensor]]:
        """Their values on this rank."""
        return [[segment.model_values for segment in self._copied()]]

    @property
    def shard_fp32_from_float16_groups(self) -> list[list[torch.Tensor]]:
        """The fp32 copies."""
        return [[segment.main for segment in self._copied()]]

    @property
    def model_fp32_groups(self) -> list[list[torch.nn.Parameter]]:
        """Parameters that are fp32 themselves."""
        return [[segment.parameter for segment in self._segments if segment.parameter.dtype == torch.float32]]

    @property
    def shard_fp32_groups(self) -> list[list[torch.Tensor]]:
        """Their elements that this rank updates, in place."""
        return [[segment.main for segment in self._segments if segment.parameter.dtype == torch.float32]]

    def step(self) -> tuple[bool, float | None, float | None]:
        """Update; returns (updated, gradient norm, zeros), as upstream's optimizers do."""
        self._load_gradients()
        if self.grad_scaler.active and self.grad_scaler.overflowed(self._gradients(), self._all_reduce):
            return False, None, None
        norm = self._clip()
        zeros = self._zeros() if self._settings.log_num_zeros_in_grad else None
        self.optimizer.step()
        self._store_parameters()
        return True, norm, zeros

    def zero_grad(self) -> None:
        """Nothing to do: the gradients are those in the buffers, which the wrapper clears."""

    def scale_loss(self, loss: torch.Tensor) -> torch.Tensor:
        """The loss times the loss scale."""
        return loss * self.grad_scaler.value

    def reload_model_params(self) -> None:
        """Copy the model's values into the main parameters."""
        for segment in self._segments:
            segment.main.data.copy_(segment.model_values)

    def _copied(self) -> list[Segment]:
        return [segment for segment in self._segments if segment.parameter.dtype != torch.float32]

    def _gradients(self) -> list[torch.Tensor]:
        return [segment.main.grad for segment in self._segments if segment.main.grad is not None]

    def _load_gradients(self) -> None:
        for segment in self._segments:
            if segment.main.grad is not segment.gradient and segment.main.grad is not None:
                segment.main.grad.copy_(segment.gradient)
        if self.grad_scaler.active:
            torch._foreach_mul_(self._gradients(), 1.0 / self.grad_scaler.value)

    def _counted(self) -> list[torch.Tensor]:
        rank = self._groups.tp.rank
        return [s.main.grad for s in self._segments if s.main.grad is not None and s.counts_in_norm(rank)]

    def _clip(self) -> float:
        squares = torch.zeros((), device=device())
        if counted := self._counted():
            squares = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(counted))) ** 2
        norm = self._all_reduce(squares).item() ** 0.5
        factor = clip_bound(self._settings) / (norm + _CLIP_EPSILON)
        if factor < 1.0:
            torch._foreach_mul_(self._gradients(), factor)
        return float(norm)

    def _zeros(self) -> float:
        zeros = torch.zeros((), device=device())
        for gradient in self._counted():
            zeros += gradient.numel() - gradient.count_nonzero()
        return float(self._all_reduce(zeros).item())

    def _all_reduce(self, value: torch.Tensor, op: Any = dist.ReduceOp.SUM) -> torch.Tensor:
        for group in self._reduce_over:
            if group.size > 1:
                dist.all_reduce(value, op=op, group=group.handle)
        return value

    def _store_parameters(self) -> None:
        for bucket in self._buckets:
            self._gather(bucket)
        if not self._buckets:
            for segment in self._segments:
                segment.model_values.copy_(segment.main.data)

    def _gather(self, bucket: Any) -> None:
        flat = torch.zeros(bucket.numel, device=device())
        owned = {(id(s.parameter), s.start): s for s in self._segments}
        for parameter, place in bucket.pieces:
            start = max(bucket.shard.start - place.start, 0)
            if segment := owned.get((id(parameter), start)):
                flat[place.start + start : place.start + segment.stop].copy_(segment.main.data)
        if self._groups.dp_cp.size > 1:
            dist.all_gather_into_tensor(flat, flat[bucket.shard].clone(), group=self._groups.dp_cp.handle)
        for parameter, place in bucket.pieces:
            parameter.data.view(-1).copy_(flat[place])


def _grouped(
    settings: OptimizerSettings, owned: list[Segment], *, sharded: bool
) -> dict[tuple[float, float], list[Segment]]:
    """Segments by (weight-decay, learning-rate) multiplier.

    Groups and their members stand in the order of later releases' optimizers, so that norms add up to the same bits.
    """
    decays_never = decays_not(settings)
    scaled = on_plain_names(settings.scale_lr_cond) if settings.scale_lr_cond else None

    def multipliers(segment: Segment) -> tuple[float, float]:
        wd_mult = 0.0 if decays_never(segment.name, segment.parameter) else 1.0
        return wd_mult, settings.lr_mult if scaled and scaled(segment.name, segment.parameter) else 1.0

    registered = sorted(owned, key=lambda segment: segment.index)
    found: dict[tuple[float, float], list[Segment]] = {multipliers(segment): [] for segment in registered}
    for segment in owned if sharded else registered:
        found[multipliers(segment)].append(segment)
    return found


def _torch_optimizer(
    settings: OptimizerSettings, by_group: dict[tuple[float, float], list[Segment]]
) -> torch.optim.Optimizer:
    param_groups = [
        {"params": [segment.main for segment in owned], "wd_mult": wd_mult, "lr_mult": lr_mult}
        for (wd_mult, lr_mult), owned in by_group.items()
    ]
    if settings.optimizer == "sgd":
        return torch.optim.SGD(param_groups, lr=settings.lr, momentum=settings.momentum)
    return torch.optim.AdamW(
        param_groups, lr=settings.lr, betas=settings.betas, eps=settings.eps, fused=device().type == "cuda"
    )
