"""The start of a tied embedding up to 0.8."""

from __future__ import annotations

from mcore_compat.seams._agreement import tied_embeddings_misplaced


def where_it_would(position: int, bucket_end: int, ranks: int) -> tuple[int, int]:
    """Where it would start without a bucket of its own, which may be inside the padding of the bucket before it.

    Raises:
        ConfigError: Its ranks could not share a bucket that ends there; upstream asserts that they can.
    """
    if position % ranks:
        raise tied_embeddings_misplaced(
            f"a tied embedding would start at element {position}, which {ranks} data-parallel ranks do not divide"
        )
    return position, position
