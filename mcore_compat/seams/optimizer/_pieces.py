"""What an optimizer updates on this rank: whole parameters, or its shards of them, with their fp32 main copies.

Upstream's three optimizers keep the same lists in every release, and ours has properties of the same names. Which
elements a shard covers is not read from the range maps, whose form changes, but from the memory that it shares with
the parameter.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mcore_compat.errors import StaleParameter

if TYPE_CHECKING:
    import torch

# Where the optimizers keep (parameters, model values of this rank, fp32 main values), group by group.
_PLACES = (
    ("float16_groups", "float16_groups", "fp32_from_float16_groups"),
    ("fp32_from_fp32_groups", "fp32_from_fp32_groups", "fp32_from_fp32_groups"),
    ("model_float16_groups", "shard_float16_groups", "shard_fp32_from_float16_groups"),
    ("model_fp32_groups", "shard_fp32_groups", "shard_fp32_groups"),
)


@dataclass(frozen=True)
class Piece:
    """Elements of one parameter.

    Attributes:
        parameter: The model's.
        values: The elements as the model holds them (a view).
        main: The elements as the optimizer updates them, fp32; ``values`` itself where the parameter is fp32.
    """

    parameter: torch.nn.Parameter
    values: torch.Tensor
    main: torch.Tensor

    @property
    def is_copy(self) -> bool:
        """Whether ``main`` has memory of its own."""
        return self.main.dtype != self.parameter.dtype

    @property
    def range(self) -> tuple[int, int]:
        """First element, and one past the last one, in the flattened parameter.

        Raises:
            StaleParameter: The parameter was given other memory after the optimizer was built.
        """
        offset = self.values.data_ptr() - self.parameter.data_ptr()
        start = offset // self.parameter.element_size()
        stop = start + self.values.numel()
        if start < 0 or stop > self.parameter.numel():
            raise StaleParameter(
                "a parameter no longer has the memory that the optimizer updates",
                hint="write weights with parameter.data.copy_(...), never by assigning parameter.data",
            )
        return start, stop


def members(inner: Any) -> list[Any]:
    """The optimizers of a chain, or the one itself."""
    return list(getattr(inner, "chained_optimizers", [inner]))


def pieces(inner: Any) -> Iterator[Piece]:
    """Everything that upstream's optimizer, chained or not, or our own updates on this rank."""
    for optimizer in members(inner):
        if not any(hasattr(optimizer, names[0]) for names in _PLACES):  # fp32: parameters are their own main copies
            for group in optimizer.param_groups:
                yield from (Piece(parameter, parameter, parameter) for parameter in group["params"])
        for names in _PLACES:
            lists = [getattr(optimizer, name, []) for name in names]
            for parameters, values, mains in zip(*lists, strict=True):
                for triple in zip(parameters, values, mains, strict=True):
                    if all(tensor is not None for tensor in triple):  # fp8 parameters have no 16-bit values
                        yield Piece(*triple)
