"""The parameters of this rank, their place in the whole model, and how the whole is cut over tensor-parallel ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from mcore_compat.errors import CheckpointError
from mcore_compat.seams.model import unwrap

if TYPE_CHECKING:
    from mcore_compat.contracts import Groups

_LAYERS = "decoder.layers."
_EMBEDDING = "embedding.word_embeddings.weight"
_VOCABULARY = (_EMBEDDING, "output_layer.weight", "output_layer.bias")
# Transformer Engine's layers keep the norm in the projection after it.
_FUSED_NORMS = {
    "self_attention.linear_qkv.layer_norm_": "input_layernorm.",
    "mlp.linear_fc1.layer_norm_": "pre_mlp_layernorm.",
}
# shape of the wanted part, as one slice per dimension -> that part
Read = Callable[[tuple[slice, ...]], torch.Tensor]


@dataclass(frozen=True)
class Place:
    """One parameter of this rank.

    Attributes:
        name: In the unsplit model, with local-spec names and layers counted over all pipeline stages.
        parameter: This rank's part.
        dimension: Along which the whole is cut over tensor-parallel ranks; ``None``: every rank has all.
        stretches: Parts one after the other along that dimension that are each cut: 2 for gate and up.
        is_vocabulary: Whether rows are vocabulary entries, and may be padding at the end.
        is_copy: A tied embedding once more, on the last stage.
    """

    name: str
    parameter: torch.nn.Parameter
    dimension: int | None
    stretches: int
    is_vocabulary: bool
    is_copy: bool

    def whole_shape(self, tp: int, vocab_size: int | None) -> tuple[int, ...]:
        """Shape of the unsplit tensor without padding."""
        shape = list(self.parameter.shape)
        if self.dimension is not None:
            shape[self.dimension] *= tp
        if self.is_vocabulary and vocab_size is not None:
            shape[0] = min(shape[0], vocab_size)
        return tuple(shape)

    def join(self, parts: Sequence[torch.Tensor], vocab_size: int | None) -> torch.Tensor:
        """Make the unsplit tensor out of the parts of all tensor-parallel ranks."""
        whole = parts[0]
        if self.dimension is not None and len(parts) > 1:
            by_rank = [part.chunk(self.stretches, self.dimension) for part in parts]
            whole = torch.cat([stretch for rank in zip(*by_rank, strict=True) for stretch in rank], self.dimension)
        return whole[:vocab_size] if self.is_vocabulary and vocab_size is not None else whole

    def part(self, read: Read, shape: Sequence[int], rank: int, tp: int) -> torch.Tensor:
        """Take :meth:`join` back: read this rank's part of the tensor of that shape; padding is zeros."""
        wanted = tuple(slice(0, size) for size in shape)
        if self.is_vocabulary:
            rows = self.parameter.shape[0]
            first, last = (min(bound * rows, shape[0]) for bound in (rank, rank + 1))
            real = read((slice(first, last), *wanted[1:]))
            return torch.cat([real, real.new_zeros(rows - len(real), *shape[1:])])
        if self.dimension is None or tp == 1:
            return read(wanted)
        stretch = shape[self.dimension] // self.stretches
        share = stretch // tp
        starts = [number * stretch + rank * share for number in range(self.stretches)]
        before, after = wanted[: self.dimension], wanted[self.dimension + 1 :]
        return torch.cat([read((*before, slice(at, at + share), *after)) for at in starts], self.dimension)


def places(chunks: Sequence[Any], here: Groups) -> list[Place]:
    """Every parameter of this rank's chunks, in the order of registration.

    Raises:
        CheckpointError: Experts are split over ranks, which the format does not know.
    """
    if here.ep.size > 1:
        raise CheckpointError(
            f"checkpoints know no expert parallelism, found ep {here.ep.size}", hint="use ep=1, or save_hf for weights"
        )
    return [place for model in unwrap(list(chunks)) for place in _places(model)]


def _places(model: Any) -> Iterator[Place]:
    tied = bool(getattr(model, "share_embeddings_and_output_weights", False))
    gated = bool(getattr(model.config, "gated_linear_unit", False))
    for local, parameter in model.named_parameters():
        is_copy = tied and local == "output_layer.weight" and not model.pre_process
        name = _EMBEDDING if is_copy else _whole_name(model, local)
        is_cut = bool(getattr(parameter, "tensor_model_parallel", False))
        yield Place(
            name,
            parameter,
            dimension=parameter.partition_dim if is_cut else None,
            stretches=2 if gated and ".linear_fc1." in name and is_cut else 1,
            is_vocabulary=name in _VOCABULARY and is_cut,
            is_copy=is_copy,
        )


def _whole_name(model: Any, local: str) -> str:
    if not local.startswith(_LAYERS):
        return local
    position, rest = local.removeprefix(_LAYERS).split(".", 1)
    for fused, norm in _FUSED_NORMS.items():
        if rest.startswith(fused):
            rest = norm + rest.removeprefix(fused)
    return f"{_LAYERS}{model.decoder.layers[int(position)].layer_number - 1}.{rest}"
