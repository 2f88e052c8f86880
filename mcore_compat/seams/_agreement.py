"""A failure of one rank becomes the same error on all of them, so that nobody waits for a peer that has given up."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from mcore_compat.errors import ConfigError, McoreCompatError, PeerLost

_UPSTREAM_ERRORS = (
    AssertionError,
    AttributeError,
    ImportError,
    KeyError,
    RuntimeError,
    TypeError,
    ValueError,
)


@contextmanager
def same_on_all_ranks(doing: str) -> Iterator[None]:
    """Turn an upstream exception inside the block into a library error on every rank.

    Args:
        doing: What the block does, for the message.

    Raises:
        ConfigError: Megatron refused on this rank (its exception is the cause).
        PeerLost: It refused on another one.
    """
    error: McoreCompatError | None = None
    try:
        yield
    except McoreCompatError as raised:
        error = raised
    except _UPSTREAM_ERRORS as raised:
        error = _refusal(doing, raised)
        error.__cause__ = raised
    failures = _gather(None if error is None else str(error))
    if error is not None:
        raise error
    for rank, failure in enumerate(failures):
        if failure is not None:
            raise PeerLost(f"rank {rank} failed while {doing}: {failure}")


def _gather(failure: str | None) -> list[str | None]:
    import torch.distributed as dist

    failures: list[str | None] = [failure] * dist.get_world_size()
    if len(failures) > 1:
        dist.all_gather_object(failures, failure)
    return failures


def _refusal(doing: str, raised: Exception) -> ConfigError:
    from mcore_compat.seams.parallel import groups

    text = f"Megatron refused while {doing}: {type(raised).__name__} {raised}".rstrip()
    if isinstance(raised, AssertionError) and groups().pp.size > 1:
        return tied_embeddings_misplaced(text)
    return ConfigError(text)


def tied_embeddings_misplaced(found: str) -> ConfigError:
    """The error for a buffer layout that cuts the two copies of a tied embedding differently."""
    return ConfigError(
        f"{found}\nOn this release the distributed optimizer cuts tied embeddings differently on the two pipeline "
        "stages: always before Megatron-Core 0.6.0, and until 0.13.0 when the bucket before them needs padding.",
        hint="untie the embeddings, switch use_distributed_optimizer off, use pp 1 or dp 1, or upgrade Megatron-Core",
    )
