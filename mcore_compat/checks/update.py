"""Did the step change what it should? An optimizer that updates somebody else's tensors reports success as well."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any

from mcore_compat.errors import ConfigError, FrozenUpdate
from mcore_compat.seams._arguments import require_chunks
from mcore_compat.seams.flat_buffers._aliasing import AliasCheck
from mcore_compat.seams.model import unwrap
from mcore_compat.seams.optimizer import Optimizer
from mcore_compat.seams.optimizer._main_params import MainParameterCheck, sample
from mcore_compat.seams.optimizer._pieces import Piece, members, pieces

if TYPE_CHECKING:
    import torch

# A step smaller than some rounding errors of the weight may rightly leave it as it is.
_ROUNDING = 8


@dataclass(frozen=True)
class _Canary:
    """A few elements of one parameter group that the step must change.

    Attributes:
        name: Their parameter.
        lr: Learning rate of the group.
        values: Elements as the optimizer updates them (a view).
        moving: Which of them have a gradient that makes a difference.
        before: ``values[moving]`` before the step.
    """

    name: str
    lr: float
    values: torch.Tensor
    moving: torch.Tensor
    before: torch.Tensor

    def is_dead(self) -> bool:
        return bool(self.values[self.moving].equal(self.before))


class UpdateGuard:
    """Watches optimizer steps; ``with guard: optimizer.step()``, or ``UpdateGuard(chunks, optimizer).install()`` once.

    Before a step it makes sure that every parameter lies in the wrapper's buffer and that fp32 main parameters belong
    to the model's weights; after it, that every parameter group with a learning rate and a gradient has changed. It
    looks at a few elements per group, so it costs less than 1 % of a step, and needs no collective.

    Args:
        chunks: Wrapped chunks.
        optimizer: From :func:`mcore_compat.build_optimizer`, or upstream's own.

    Raises:
        ConfigError: Arguments of another kind, or the optimizer of another model.
    """

    def __init__(self, chunks: Sequence[Any], optimizer: Any) -> None:
        require_chunks(chunks)
        self._optimizer = optimizer
        self._ours = isinstance(optimizer, Optimizer)
        self._inner = optimizer.inner if self._ours else optimizer
        self._parameters = {p: name for chunk in chunks for name, p in unwrap(chunk).named_parameters()}
        if not hasattr(self._inner, "step"):
            raise ConfigError(f"{type(optimizer).__name__} is no optimizer", hint="UpdateGuard(chunks, optimizer)")
        self._groups = list(_by_group(self._inner))
        owned = [piece.parameter in self._parameters for _, pieces in self._groups for piece in pieces]
        if owned and not any(owned):
            raise ConfigError(
                "the optimizer updates no parameter of these chunks", hint="pass the chunks that it was built from"
            )
        # Our own optimizer checks these itself.
        self._checks: tuple[Callable[[], None], ...] = (
            () if self._ours else (AliasCheck(chunks), MainParameterCheck(self._inner, chunks))
        )
        self._canaries: list[_Canary] = []

    def install(self) -> UpdateGuard:
        """Watch every ``optimizer.step()`` from now on; :meth:`remove` ends it."""
        step = self._optimizer.step

        def guarded(*args: Any, **kwargs: Any) -> Any:
            with self:
                return step(*args, **kwargs)

        self._optimizer.step = guarded
        return self

    def remove(self) -> None:
        """Undo :meth:`install`."""
        self._optimizer.__dict__.pop("step", None)

    def __enter__(self) -> UpdateGuard:
        """Look before the step.

        Raises:
            StaleParameter: A parameter left its buffer, or fp32 main parameters disagree with the model's weights.
        """
        for check in self._checks:
            check()
        self._canaries = [canary for group, owned in self._groups if (canary := self._canary(group, owned))]
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Look after the step.

        Raises:
            FrozenUpdate: A group with non-zero gradients and learning rate did not change.
        """
        dead = [canary for canary in self._canaries if canary.is_dead()] if kind is None else []
        self._canaries = []
        if dead and not self._overflowed():
            raise FrozenUpdate(
                f"{len(dead)} parameter groups did not change, first the one of {dead[0].name}, although its gradients "
                f"are non-zero and its learning rate is {dead[0].lr:g}",
                hint="the optimizer updates other tensors than the model reads: build it after the model was wrapped, "
                "and from the same chunks",
            )

    def _canary(self, group: dict[str, Any], owned: list[Piece]) -> _Canary | None:
        if not group["lr"]:
            return None
        for piece in owned:
            gradient, values = self._sampled_gradient(piece), sample(piece.main)
            if gradient is None:
                continue
            visible = _ROUNDING * values.abs() * _epsilon(values)
            moving = (gradient.isfinite()) & (group["lr"] * gradient.abs().clamp(max=1) > visible)
            if moving.any():
                name = self._parameters.get(piece.parameter, "a parameter of another model")
                return _Canary(name, group["lr"], values, moving, values[moving].clone())
        return None

    def _sampled_gradient(self, piece: Piece) -> torch.Tensor | None:
        gradient = _gradient(piece.parameter)
        if gradient is None:
            return None
        start, stop = piece.range
        return sample(gradient.view(-1)[start:stop])

    def _overflowed(self) -> bool:
        """Whether half-precision gradients are not finite: such a step is skipped on purpose."""
        gradients = (_gradient(parameter) for parameter in self._parameters)
        return any(not gradient.isfinite().all() for gradient in gradients if gradient is not None)


def _by_group(inner: Any) -> Iterator[tuple[dict[str, Any], list[Piece]]]:
    """The parameter groups of this rank that are not empty, live, each with what is updated in it."""
    owned = {id(piece.main): piece for piece in pieces(inner)}
    for one in members(inner):
        for group in getattr(one, "optimizer", one).param_groups:
            if here := [owned[id(main)] for main in group["params"] if id(main) in owned]:
                yield group, here


def _gradient(parameter: Any) -> torch.Tensor | None:
    gradient: torch.Tensor | None = getattr(parameter, "main_grad", None)
    return parameter.grad if gradient is None else gradient


def _epsilon(values: torch.Tensor) -> float:
    import torch

    return torch.finfo(values.dtype).eps
