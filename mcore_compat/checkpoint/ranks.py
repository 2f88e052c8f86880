"""Exchanges between ranks. A job of one rank exchanges nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import torch.distributed as dist

from mcore_compat.errors import CheckpointError
from mcore_compat.seams._agreement import same_on_all_ranks

if TYPE_CHECKING:
    from mcore_compat.contracts import Group

ValueT = TypeVar("ValueT")


def gathered(value: ValueT, group: Group | None = None) -> list[ValueT]:
    """Everybody's value in rank order; ``None``: of all ranks of the job."""
    size = dist.get_world_size() if group is None else group.size
    if size == 1:
        return [value]
    values: list[ValueT] = [value] * size
    dist.all_gather_object(values, value, group=None if group is None else group.handle)
    return values


@contextmanager
def together(doing: str, folder: Path) -> Iterator[None]:
    """A block that every rank runs; a failure of one is a library error on all, and nobody goes on alone.

    Args:
        doing: What the block does, for the message.
        folder: Where; named when the operating system refuses.

    Raises:
        CheckpointError: A file cannot be read or written.
        PeerLost: Another rank failed.
    """
    with same_on_all_ranks(doing):
        try:
            yield
        except OSError as error:
            hint = "look at free space and permissions"
            raise CheckpointError(f"{doing} in {folder} failed: {error}", hint=hint) from error
