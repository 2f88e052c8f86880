"""Axis: where each parameter starts in the wrapper's flat buffers, and where each bucket ends.

The rules are data and bind nothing of Megatron, so that the layout of any release can be computed anywhere: the rule
of the Megatron that is there is chosen by its source, the rule of a named release by its name.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from mcore_compat.matrix.table import at_least
from mcore_compat.seams._registry import Seam

# (where the parameter would start, padded end of the bucket before it, ranks that share it)
# -> (where the bucket before it is full, where it starts)
TiedStart = Callable[[int, int, int], tuple[int, int]]


@dataclass(frozen=True)
class PaddingRule:
    """What the releases differ in. Multiples, and a bucket for tied embeddings, with the distributed optimizer only.

    Attributes:
        parameter_multiple: Parameters start at multiples of this (elements).
        bucket_multiple: Buckets end at multiples of this and of the number of ranks that share them.
        tied_start: Where a tied embedding starts that comes after other parameters; it has a bucket of its own.
            ``None``: it is a parameter like any other.
        fewest: A bucket is not closed before it holds this many parameters.
        size_grows: The default bucket size grows with the number of data-parallel ranks.
        by_parameter_type: One buffer per parameter type and gradient type; otherwise per gradient type alone.
        buffers_experts: Experts have buffers; otherwise each has a gradient tensor of its own.
        splits_experts: Several instances of the optimizer divide the ranks that share experts, too.
    """

    parameter_multiple: int = 1
    bucket_multiple: int = 1
    tied_start: TiedStart | None = None
    fewest: int = 1
    size_grows: bool = True
    by_parameter_type: bool = True
    buffers_experts: bool = True
    splits_experts: bool = False

    def bucket_end(self, position: int, ranks: int, extra_multiple: int) -> int:
        """The padded end of a bucket whose last parameter ends at ``position``."""
        return round_up(position, math.lcm(self.bucket_multiple, ranks, extra_multiple))


seam: Seam[Callable[[], PaddingRule]] = Seam("param_padding")
BUFFER = "megatron.core.distributed.param_and_grad_buffer:ParamAndGradBuffer"
PRIVATE_BUFFER = "megatron.core.distributed.param_and_grad_buffer:_ParamAndGradBuffer"


def padding_rule(release: str | None = None) -> PaddingRule:
    """The rule of a release, or of the Megatron that is there.

    Raises:
        ConfigError: ``release`` is no release of Megatron-Core from 0.4.0 on.
        UnsupportedMegatron: The source of the Megatron that is there matches no rule.
    """
    if release is None:
        return seam.bind()()
    at_least(release, "0.4.0", required=True)
    known = [variant for variant in seam.variants if at_least(release, variant.since)]
    newest = max(known, key=lambda variant: sum(at_least(variant.since, other.since) for other in known))
    return newest.bind()()


def round_up(position: int, multiple: int) -> int:
    """The first multiple that is not below ``position``."""
    return -(-position // multiple) * multiple
