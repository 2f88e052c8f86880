"""A tied embedding lives on the first and on the last pipeline stage; both copies have to stay the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mcore_compat.errors import StaleParameter

if TYPE_CHECKING:
    import torch

_ABSENT = -(2**62)


def check_tied_copies(chunks: Sequence[Any]) -> None:
    """Compare the copies by a checksum of their bits; one small all-reduce, none where there is no second copy.

    Raises:
        StaleParameter: They differ, on every rank of the model-parallel group.
    """
    import torch
    import torch.distributed as dist

    from mcore_compat.runtime.device import device
    from mcore_compat.seams.model import unwrap
    from mcore_compat.seams.parallel import groups

    here = groups()
    models = [unwrap(chunk) for chunk in chunks]
    if here.pp.size == 1 or not getattr(models[0], "share_embeddings_and_output_weights", False):
        return
    digests = torch.full((2, here.tp.size), _ABSENT, dtype=torch.int64)
    for weight in map(_copy, models):
        if weight is not None:
            digest = _digest(weight)
            digests[:, here.tp.rank] = torch.tensor([digest, -digest])
    digests = digests.to(device())
    dist.all_reduce(digests, op=dist.ReduceOp.MAX, group=here.mp.handle)
    if not torch.equal(digests[0], -digests[1]):
        raise StaleParameter(
            "the copies of the tied embedding on the first and the last pipeline stage differ",
            hint="something wrote to one of them; load weights through mcore_compat.load_hf on all stages",
        )


def _copy(model: Any) -> torch.Tensor | None:
    if model.pre_process:
        weight: torch.Tensor = model.embedding.word_embeddings.weight
        return weight
    return model.output_layer.weight if model.post_process else None


def _digest(weight: torch.Tensor) -> int:
    import torch

    bits = weight.detach().contiguous().view(torch.int32 if weight.element_size() == 4 else torch.int16).view(-1)
    places = torch.arange(1, bits.numel() + 1, device=bits.device)
    return int((bits.long() * places).sum().item()) % (2**61)
