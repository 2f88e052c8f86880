"""A failure of one rank becomes the same error on all of them, so that nobody waits for a peer that has given up."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from mcore_compat.errors import ConfigError, McoreCompatError, PeerLost

_TIED = (
    "On this release the distributed optimizer cannot place tied embeddings under pipeline parallelism when the bucket "
    "before them needs padding (fixed in Megatron-Core 0.13.0)"
)
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

    failures: list[str | None] = [None] * dist.get_world_size()
    dist.all_gather_object(failures, failure)
    return failures


def _refusal(doing: str, raised: Exception) -> ConfigError:
    from mcore_compat.seams.parallel import groups

    text = f"Megatron refused while {doing}: {type(raised).__name__} {raised}".rstrip()
    if isinstance(raised, AssertionError) and groups().pp.size > 1:
        hint = "untie the embeddings, or switch use_distributed_optimizer off, or pp to 1, or upgrade Megatron-Core"
        return ConfigError(f"{text}\n{_TIED}.", hint=hint)
    return ConfigError(text)
