"""What callers mix up, refused where they say it: Megatron would fail far from there, or not at all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mcore_compat.contracts import Batch, LossTerm
from mcore_compat.errors import ConfigError
from mcore_compat.seams.model.build import unwrap


def misplaced(found: Any, expected: str, hint: str) -> ConfigError:
    """The error about an argument of another kind, often one that belongs elsewhere in the call."""
    return ConfigError(f"{type(found).__name__} is not what is expected in its place: {expected}", hint=hint)


def require_chunks(chunks: Sequence[Any], *, wrapped: bool | None = None) -> None:
    """Make sure that these are model chunks.

    Args:
        chunks: What the caller gave.
        wrapped: Whether they have to be wrapped for data parallelism; ``None``: it does not matter.

    Raises:
        ConfigError: Something else, such as one module without a list around it.
    """
    several = hasattr(chunks, "__len__") and hasattr(chunks, "__getitem__")
    hint = "pass the list that gpt_model, build_model or wrap_data_parallel returned, of one model [model]"
    if several and not len(chunks):
        raise ConfigError("nothing is not what is expected in its place: a list of model chunks", hint=hint)
    if not several or not all(hasattr(chunk, "named_parameters") for chunk in chunks):
        raise misplaced(chunks, "a list of model chunks", hint)
    for chunk in chunks:
        if wrapped is not None and hasattr(chunk, "zero_grad_buffer") is not wrapped:
            state = "is not" if wrapped else "is already"
            hint = "pass what wrap_data_parallel returned" if wrapped else "wrap each chunk once"
            raise ConfigError(f"{type(chunk).__name__} {state} wrapped for data parallelism", hint=hint)


def require_optimizer(optimizer: Any, chunks: Sequence[Any]) -> None:
    """Make sure that this is the optimizer of these chunks.

    Raises:
        ConfigError: It is upstream's, torch's, or another model's.
    """
    from mcore_compat.seams.optimizer._wrapper import Optimizer

    if not isinstance(optimizer, Optimizer):
        hint = "optimizer = mcore_compat.build_optimizer(OptimizerSettings(...), chunks)"
        raise misplaced(optimizer, "the Optimizer of build_optimizer", hint)
    found = unwrap(list(chunks))
    if len(found) != len(optimizer.chunks) or any(
        one is not unwrap(own) for one, own in zip(found, optimizer.chunks, strict=True)
    ):
        raise ConfigError(
            "the optimizer was built for other chunks than these", hint="pass the optimizer of these very chunks"
        )


def require_microbatches(microbatches: Sequence[Batch]) -> None:
    """Make sure that there are some, and that the first one has tokens.

    Raises:
        ConfigError: It is a single batch, an iterator, or of other names.
    """
    if not isinstance(microbatches, Sequence):
        raise misplaced(microbatches, "a list of microbatches", "[batch] for one, list(...) for an iterator")
    if not microbatches:
        raise ConfigError("no microbatches", hint="pass at least one microbatch on every rank")
    first = microbatches[0]
    if not isinstance(first, Mapping) or "tokens" not in first:
        found = sorted(first) if isinstance(first, Mapping) else type(first).__name__
        raise ConfigError(f"a microbatch maps 'tokens' to a tensor [R, T], found {found}", hint="{'tokens': input_ids}")
    if first["tokens"].dim() != 2:
        raise ConfigError(f"tokens must be [R, T], found shape {tuple(first['tokens'].shape)}")


def require_term(term: LossTerm, earlier: Sequence[LossTerm]) -> None:
    """Make sure that a loss function returned sums and counts, the same metrics for each microbatch.

    Raises:
        ConfigError: It did not.
    """
    import torch

    if not isinstance(term, LossTerm):
        raise ConfigError(
            f"the loss function returned {type(term).__name__}, expected LossTerm",
            hint="mcore_compat.LossTerm(sum over tokens, number of tokens)",
        )
    for name, value in _scalars(term):
        if not isinstance(value, torch.Tensor) or value.dim():
            found = f"shape {tuple(value.shape)}" if isinstance(value, torch.Tensor) else type(value).__name__
            raise ConfigError(
                f"LossTerm.{name} must be a scalar tensor, found {found}", hint="torch.tensor(...), .sum()"
            )
    if not term.sum.requires_grad:
        raise ConfigError(
            "LossTerm.sum has no gradient", hint="no detach(), item() or no_grad(); of no tokens, output.sum() * 0"
        )
    if earlier and term.metrics.keys() != earlier[0].metrics.keys():
        names = sorted(earlier[0].metrics.keys() ^ term.metrics.keys())
        raise ConfigError(f"only some microbatches have the metrics {', '.join(names)}", hint="give (0, 0) elsewhere")


def _scalars(term: LossTerm) -> Iterator[tuple[str, Any]]:
    yield "sum", term.sum
    yield "count", term.count
    for name, pair in term.metrics.items():
        values = pair if isinstance(pair, tuple | list) and len(pair) == 2 else (pair, None)
        yield from ((f"metrics[{name!r}] (sum, count)", value) for value in values)
