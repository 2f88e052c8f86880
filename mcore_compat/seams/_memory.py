"""What the memory of a model holds. A kernel that meets storage without memory ends the process without a word."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from mcore_compat.errors import ConfigError
from mcore_compat.seams.gradients import seam as gradient_storage
from mcore_compat.seams.model.build import unwrap

# By first chunk: part to what it is restored from.
_away: WeakKeyDictionary[Any, dict[Any, Any]] = WeakKeyDictionary()
_filled: WeakSet[Any] = WeakSet()


def away(chunks: Sequence[Any]) -> dict[Any, Any]:
    """The offloaded parts of a model, live: the same however its chunks are wrapped."""
    return _away.setdefault(unwrap(chunks[0]), {})


def require_here(chunks: Sequence[Any], doing: str, *parts: str) -> None:
    """Make sure that parts are not offloaded.

    Raises:
        ConfigError: Some are.
    """
    gone = [part for part in parts if part in _away.get(unwrap(chunks[0]), ())]
    if gone:
        raise ConfigError(
            f"{doing} needs {', '.join(parts)}, but offloaded: {', '.join(gone)}",
            hint=f"mcore_compat.reload(chunks, optimizer, {gone})",
        )


def fill(chunks: Sequence[Any]) -> None:
    """Note that a backward pass is about to write gradients.

    Raises:
        ConfigError: Those of an earlier one are still there; they would be normalised once more.
    """
    storage = gradient_storage.bind()
    # Somebody may clear them without telling us, so a note alone is no proof.
    if any(gradients.any() for chunk in chunks if chunk in _filled for gradients in storage(chunk)):
        raise ConfigError(
            "the chunks still hold the gradients of an earlier forward_backward",
            hint="mcore_compat.zero_grad(chunks, optimizer) before each step (optimizer.zero_grad() is not enough); "
            "all microbatches of a step go into one call",
        )
    _filled.update(chunks)


def cleared(chunks: Sequence[Any]) -> None:
    """Note that gradients were cleared."""
    _filled.difference_update(chunks)
