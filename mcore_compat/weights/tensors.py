"""Pure functions on the tensors of one tensor-parallel rank. The inverse of each stands next to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from mcore_compat.weights.architecture import Architecture
    from mcore_compat.weights.names import Rule


def fuse(architecture: Architecture, rule: Rule, parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """Make one rank's Megatron parameter out of its cut Hugging Face tensors.

    Args:
        architecture: Gives the width of a head.
        rule: Says how.
        parts: One tensor per name of the rule, already cut.

    Returns:
        ``qkv``: per query group its query heads, its key head, its value head. ``gate_up``: all gate rows,
        then all up rows. Otherwise the one tensor itself.
    """
    if rule.fusion == "qkv":
        groups = parts[1].shape[0] // architecture.head_dim
        return torch.cat([_by_group(part, groups) for part in parts], dim=1).flatten(0, 1)
    return torch.cat(list(parts)) if rule.fusion == "gate_up" else parts[0]


def unfuse(architecture: Architecture, rule: Rule, local: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Take :func:`fuse` back; the results may be views."""
    if rule.fusion == "qkv":
        head = architecture.head_dim
        queries = architecture.num_heads // architecture.num_kv_heads * head
        grouped = _by_group(local, local.shape[0] // (queries + 2 * head))
        split = torch.split(grouped, [queries, head, head], dim=1)
        return tuple(part.flatten(0, 1) for part in split)
    return local.chunk(2) if rule.fusion == "gate_up" else (local,)


def _by_group(rows: torch.Tensor, groups: int) -> torch.Tensor:
    return rows.reshape(groups, -1, *rows.shape[1:])


def pad_rows(rows: torch.Tensor, count: int) -> torch.Tensor:
    """Append zero rows up to ``count``; a padded entry of the vocabulary has no weight."""
    return torch.cat([rows, rows.new_zeros(count - rows.shape[0], *rows.shape[1:])])


def join(pieces: Sequence[torch.Tensor], dimension: int | None) -> torch.Tensor:
    """Undo the cut: concatenate the ranks' pieces, or copy the first where every rank has all."""
    if dimension is None:
        return pieces[0].clone(memory_format=torch.contiguous_format)
    return torch.cat(list(pieces), dim=dimension)


def join_gated(pieces: Sequence[torch.Tensor]) -> torch.Tensor:
    """Undo the cut of a gate and values that each rank has on top of each other."""
    return torch.cat([half for halves in zip(*(piece.chunk(2) for piece in pieces), strict=True) for half in halves])
