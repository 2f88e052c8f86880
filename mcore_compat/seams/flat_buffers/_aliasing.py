"""Do parameters still lie where the wrapper put them? That is where the distributed optimizer writes its result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mcore_compat.errors import StaleParameter
from mcore_compat.seams.flat_buffers import seam
from mcore_compat.seams.model import unwrap


class AliasCheck:
    """Compares addresses; where parameters have no buffer of the wrapper's, nothing can go wrong.

    Args:
        chunks: Wrapped chunks.
    """

    def __init__(self, chunks: Sequence[Any]) -> None:
        names = {parameter: name for chunk in chunks for name, parameter in unwrap(chunk).named_parameters()}
        buffers = (buffer for chunk in chunks for buffer in seam.bind()(chunk))
        self._places = [
            (names[parameter], parameter, flat, start * flat.element_size())
            for buffer in buffers
            if (flat := buffer.parameters) is not None
            for parameter, (start, _, _) in buffer.places.items()
        ]

    def __call__(self) -> None:
        """Compare.

        Raises:
            StaleParameter: Somebody bound other storage to a parameter.
        """
        stale = [
            (name, parameter, flat.data_ptr() + offset)
            for name, parameter, flat, offset in self._places
            if parameter.data_ptr() != flat.data_ptr() + offset and flat.data_ptr()  # 0: offloaded
        ]
        if stale:
            name, parameter, expected = stale[0]
            raise StaleParameter(
                f"the storage of {len(stale)} parameters, first {name}, is not the wrapper's buffer: found "
                f"{_addresses(parameter, parameter.data_ptr())}, expected {_addresses(parameter, expected)}. The "
                "distributed optimizer updates the buffer, so the weights that the model reads would never change",
                hint="do not assign parameter.data after wrapping; mcore_compat.memory_buffers(chunks) gives views of "
                "the wrapper's own buffer",
            )


def _addresses(parameter: Any, start: int) -> str:
    return f"[{start:#x}, {start + parameter.numel() * parameter.element_size():#x})"
