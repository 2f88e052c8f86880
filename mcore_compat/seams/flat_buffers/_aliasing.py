"""Do parameters still lie where the wrapper put them? That is where the distributed optimizer writes its result."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from mcore_compat.errors import StaleParameter
from mcore_compat.seams.flat_buffers import seam
from mcore_compat.seams.model import unwrap

# Name, parameter, flat storage, and where it starts there, in bytes.
Place = tuple[str, Any, Any, int]


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
        require_in_place(self._places)


def require_in_place(places: Iterable[Place]) -> None:
    """Compare addresses.

    Raises:
        StaleParameter: Somebody bound other storage to a parameter.
    """
    stale = [
        (name, parameter, flat.data_ptr() + offset)
        for name, parameter, flat, offset in places
        if parameter.data_ptr() != flat.data_ptr() + offset and flat.data_ptr()  # 0: offloaded
    ]
    if stale:
        name, parameter, expected = stale[0]
        raise StaleParameter(
            f"the storage of {len(stale)} parameters, first {name}, is not the flat buffer: found "
            f"{_addresses(parameter, parameter.data_ptr())}, expected {_addresses(parameter, expected)}. The "
            "distributed optimizer, and whoever else writes to the buffer, would never change the model's weights",
            hint="do not assign parameter.data after wrapping; copy into the views that "
            "mcore_compat.memory_buffers(chunks) gives",
        )


def _addresses(parameter: Any, start: int) -> str:
    return f"[{start:#x}, {start + parameter.numel() * parameter.element_size():#x})"
