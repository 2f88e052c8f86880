"""The parameters of GPT chunks under the names that they have in a model on one process."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from mcore_compat.errors import WeightsError
from mcore_compat.weights.modules import unwrapped

if TYPE_CHECKING:
    import torch

_LAYER = re.compile(r"^(.*?\blayers)\.(\d+)\.")
_EXPERT = re.compile(r"(?<=local_experts\.)\d+(?=\.)|(?<=experts\.linear_fc[12]\.(?:weight))\d+$")


class MegatronKey(NamedTuple):
    """A parameter, and how its full tensor comes out of the ranks' slices.

    Attributes:
        name: Full name; of experts that other ranks have others of, with ``{}`` for the expert's number.
        dimension: Along which tensor-parallel ranks cut it; ``None``: they all have all of it.
        gated: Each rank's slice is a slice of the gate above a slice of the values.
        expert: Number on its rank.
        experts: How many of them a rank holds; 0: no expert, or all are on every rank.
    """

    name: str
    dimension: int | None = None
    gated: bool = False
    expert: int = 0
    experts: int = 0

    def full_name(self, rank: int) -> str:
        """The name of what that expert-parallel rank holds."""
        return self.name.format(rank * self.experts + self.expert) if self.experts else self.name


def megatron_parameters(chunks: Sequence[Any]) -> dict[MegatronKey, torch.nn.Parameter]:
    """Map keys to this rank's parameters; a tied head's copy of the embedding is left out.

    Layers are numbered from 0 over all stages.

    Raises:
        WeightsError: A parameter whose slices cannot be joined.
    """
    found = {}
    for model in map(unwrapped, chunks):
        for name, parameter in model.named_parameters():
            if not getattr(parameter, "shared", False):
                found[_key(model, name, parameter)] = parameter
    return found


def _key(model: Any, name: str, parameter: Any) -> MegatronKey:
    if hasattr(parameter, "partition_sizes"):
        raise WeightsError(f"the slices of {name} are several tensors each and cannot be joined")
    dimension = parameter.partition_dim if getattr(parameter, "tensor_model_parallel", False) else None
    gated = bool(model.config.gated_linear_unit) and "linear_fc1" in name and dimension == 0
    plain = MegatronKey(_global_layer(model, name), dimension, gated)
    return plain if getattr(parameter, "allreduce", True) else _expert_key(model.config, plain)


def _expert_key(config: Any, plain: MegatronKey) -> MegatronKey:
    number = _EXPERT.search(plain.name)
    if number is None:
        raise WeightsError(f"{plain.name} holds several experts and cannot be joined", hint="use the local layer spec")
    return plain._replace(
        name=_EXPERT.sub("{}", plain.name, count=1),
        expert=int(number.group()),
        experts=config.num_moe_experts // config.expert_model_parallel_size,
    )


def _global_layer(model: Any, name: str) -> str:
    """Put the layer's own number, counted over all stages, in the place of its position in the chunk."""
    found = _LAYER.match(name)
    if found is None:
        return name
    layers, position = found.groups()
    number = model.get_submodule(f"{layers}.{position}").layer_number - 1
    return f"{layers}.{number}.{name[found.end() :]}"
