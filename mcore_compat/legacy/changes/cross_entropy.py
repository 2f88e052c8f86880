"""The vocabulary-parallel cross entropy."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import torch

from mcore_compat.detect import Facts
from mcore_compat.legacy.changes._change import Change, module
from mcore_compat.runtime.patches import Patch

_HOME = "megatron.core.tensor_parallel.cross_entropy"


def _in_place(facts: Facts) -> bool:
    return facts.defines(f"{_HOME}:VocabParallelCrossEntropy")


def _preserving(attributes: tuple[str, ...]) -> Iterator[Patch]:
    original = module(_HOME).vocab_parallel_cross_entropy

    @functools.wraps(original)
    def vocab_parallel_cross_entropy(vocab_parallel_logits: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        fp32 = vocab_parallel_logits.dtype == torch.float32
        return original(vocab_parallel_logits.clone() if fp32 else vocab_parallel_logits, *args, **kwargs)

    why = "later releases compute in the memory of fp32 logits"
    yield Patch(module(_HOME), "vocab_parallel_cross_entropy", vocab_parallel_cross_entropy, why)


CHANGES = (Change("vocab_parallel_cross_entropy leaves fp32 logits as they are", "0.7.0", _in_place, _preserving),)
