"""Do actor and reference agree before the first update? If not, why?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mcore_compat.contracts import Batch
from mcore_compat.errors import ConfigError, ReferenceMismatch

if TYPE_CHECKING:
    import torch

# A torch.nn.Module that maps tokens [R, T] (and the INPUTS that the batch has) to logits [R, T, V] or to an object with
# ``.logits``, or anything callable that maps the batch to log-probabilities [R, T - 1] of the tokens after the first.
Side = Callable[..., Any]
INPUTS = ("attention_mask", "position_ids")


@dataclass(frozen=True)
class Parity:
    """What :func:`reference_parity` found.

    Attributes:
        passed: No log-probability differs by more than the tolerance.
        mean_difference: Mean of actor − reference, in nats.
        largest_difference: Largest |actor − reference|, in nats.
        cause: Empty, or one of ``not finite``, ``parameter precision``, ``weights differ``, ``train mode``,
            ``logit precision``, ``padding``, ``unknown``.
        detail: What differs, in words.
    """

    passed: bool
    mean_difference: float
    largest_difference: float
    cause: str = ""
    detail: str = ""

    def require(self) -> Parity:
        """Itself where it passed.

        Raises:
            ReferenceMismatch: It did not.
        """
        if self.passed:
            return self
        raise ReferenceMismatch(
            f"actor and reference differ by up to {self.largest_difference:.3g} nats before any update "
            f"(mean {self.mean_difference:.3g}): {self.cause}. {self.detail}",
            hint="load both from the same folder in the same precision, and evaluate both in evaluation mode",
        )


def reference_parity(actor: Side, reference: Side, batch: Batch, *, tolerance: float = 0.0) -> Parity:
    """Compare per-token log-probabilities at step 0, where they should be identical, and explain a difference.

    Args:
        actor: A module or callable, see :data:`Side`; evaluated in the mode it is in.
        reference: The same.
        batch: ``tokens`` [R, T] int64; optional ``attention_mask`` [R, T], 0 at padding, where nothing is compared, and
            ``position_ids`` [R, T].
        tolerance: Largest difference that passes, in nats. Rounding to bf16 costs 0.1 and more, so keep it 0.

    Returns:
        The verdict; ``.require()`` turns a failed one into an error.

    Raises:
        ConfigError: A side or the batch is of another kind, or there is nothing to compare.
    """
    import torch

    _check_batch(batch)
    with torch.no_grad():
        actor_logprob, actor_logits = _evaluate(actor, batch)
        reference_logprob, reference_logits = _evaluate(reference, batch)
    difference = actor_logprob.double() - reference_logprob.double()
    if "attention_mask" in batch:
        difference = difference.where(batch["attention_mask"][:, 1:].bool(), 0.0)
    mean, largest = difference.mean().item(), difference.abs().max().item()
    if largest <= tolerance:
        return Parity(True, mean, largest)
    cause, detail = (
        _not_finite(difference)
        or _parameter_precision(actor, reference)
        or _train_mode(actor, reference)
        or _weights(actor, reference)
        or _logit_precision(actor_logits, reference_logits)
        or _padding(difference, batch, tolerance)
        or ("unknown", "Parameters, precision and mode are the same; compare the position ids of the two sides.")
    )
    return Parity(False, mean, largest, cause, detail)


def _evaluate(side: Side, batch: Batch) -> tuple[torch.Tensor, torch.Tensor | None]:
    import torch

    if not isinstance(side, torch.nn.Module):
        if not callable(side):
            raise ConfigError(
                f"a side is a module or a function of the batch, found {type(side).__name__}", hint="see Side"
            )
        return _checked(side(batch), tuple(batch["tokens"][:, 1:].shape)), None
    output = side(batch["tokens"], **{name: batch[name] for name in INPUTS if name in batch})
    logits = _checked(getattr(output, "logits", output), (*batch["tokens"].shape, -1))
    logprob = torch.log_softmax(logits[:, :-1].float(), dim=-1)
    return logprob.gather(-1, batch["tokens"][:, 1:, None]).squeeze(-1), logits


def _check_batch(batch: Batch) -> None:
    if not isinstance(batch, Mapping) or "tokens" not in batch or batch["tokens"].dim() != 2:
        raise ConfigError("the batch has to map 'tokens' to a tensor [R, T]", hint="{'tokens': input_ids}")
    mask = batch.get("attention_mask", batch["tokens"].new_ones(batch["tokens"].shape))
    if mask.shape != batch["tokens"].shape or not mask[:, 1:].any():
        raise ConfigError(
            f"attention_mask [R, T] leaves nothing to compare: tokens {tuple(batch['tokens'].shape)}, "
            f"mask {tuple(mask.shape)}",
            hint="1 where a token counts, 0 at padding; at least two tokens",
        )


def _checked(found: Any, shape: tuple[int, ...]) -> torch.Tensor:
    """A tensor of that shape, -1: any size; others would be broadcast, or compared as something that they are not."""
    import torch

    fits = isinstance(found, torch.Tensor) and found.dim() == len(shape)
    if not fits or any(size not in (-1, there) for size, there in zip(shape, found.shape, strict=True)):
        what = f"shape {tuple(found.shape)}" if isinstance(found, torch.Tensor) else type(found).__name__
        raise ConfigError(
            f"a side gave {what}, expected {shape}",
            hint="a module gives logits [R, T, V] or an object with .logits, a function log-probabilities [R, T - 1]",
        )
    tensor: torch.Tensor = found
    return tensor


def _not_finite(difference: torch.Tensor) -> tuple[str, str] | None:
    number = int((~difference.isfinite()).sum())
    return ("not finite", f"{number} log-probabilities are not, on one side or both.") if number else None


def _parameters(side: Side) -> dict[str, torch.Tensor]:
    named = getattr(side, "named_parameters", None)
    return dict(named()) if named is not None else {}


def _parameter_precision(actor: Side, reference: Side) -> tuple[str, str] | None:
    ours, theirs = _parameters(actor), _parameters(reference)
    found, expected = ({p.dtype for p in named.values()} for named in (ours, theirs))
    unequal = [name for name in ours.keys() & theirs.keys() if ours[name].dtype != theirs[name].dtype]
    if not ours or not theirs or (found == expected and not unequal):
        return None
    where = f" {len(unequal)} parameters differ in dtype, first {min(unequal)}." if unequal else ""
    return (
        "parameter precision",
        f"The dtypes differ: the actor holds {_listed(found)}, the reference {_listed(expected)}.{where}",
    )


def _weights(actor: Side, reference: Side) -> tuple[str, str] | None:
    ours, theirs = _parameters(actor), _parameters(reference)
    if not ours or not theirs:
        return None
    if alone := sorted(ours.keys() ^ theirs.keys()):
        return "weights differ", f"Only one of the two has {alone[0]}."
    for name, value in ours.items():
        other = theirs[name]
        if value.shape != other.shape:
            return "weights differ", f"First at {name}: shapes {tuple(value.shape)} and {tuple(other.shape)}."
        if not value.equal(other):
            largest = (value.double() - other.double()).abs().max().item()
            return "weights differ", f"First at {name}, by up to {largest:.3g}."
    return None


def _train_mode(actor: Side, reference: Side) -> tuple[str, str] | None:
    import torch

    for who, side in (("actor", actor), ("reference", reference)):
        if not isinstance(side, torch.nn.Module):
            continue
        active = [name for name, module in side.named_modules() if module.training and getattr(module, "p", 0)]
        if active:
            return "train mode", f"The {who} is in training mode with dropout at {active[0]}."
    return None


def _logit_precision(actor: torch.Tensor | None, reference: torch.Tensor | None) -> tuple[str, str] | None:
    if actor is None or reference is None:
        return None
    ours, theirs = _precision(actor), _precision(reference)
    if ours == theirs:
        return None
    return "logit precision", f"The actor's logits carry {ours}, the reference's {theirs}."


def _padding(difference: torch.Tensor, batch: Batch, tolerance: float) -> tuple[str, str] | None:
    mask = batch.get("attention_mask")
    if mask is None:
        return None
    padded, unequal = (mask == 0).any(dim=1), (difference.abs() > tolerance).any(dim=1)
    if padded.all() or (unequal & ~padded).any():
        return None
    return "padding", "Only rows with padding differ: one side attends to it, or counts it in the position ids."


def _precision(logits: torch.Tensor) -> str:
    """The narrowest type that holds every logit exactly."""
    import torch

    for dtype in (torch.bfloat16, torch.float16):
        if logits.to(dtype).to(logits.dtype).equal(logits):
            return str(dtype)
    return str(logits.dtype)


def _listed(dtypes: set[torch.dtype]) -> str:
    return ", ".join(sorted(map(str, dtypes)))
