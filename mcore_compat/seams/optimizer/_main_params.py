"""In half precision the optimizer updates fp32 copies. Do they still belong to the weights that the model holds?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mcore_compat.errors import StaleParameter
from mcore_compat.seams.optimizer._groups import plain_name
from mcore_compat.seams.optimizer._pieces import pieces

if TYPE_CHECKING:
    import torch

# Elements compared per parameter: overwritten weights differ nearly everywhere, so a few tell.
_SAMPLE = 64


class MainParameterCheck:
    """Compares a sample of each parameter with its fp32 copy.

    Args:
        inner: Upstream's optimizer, chained or not, or our own.
        chunks: Wrapped chunks, for names.
    """

    def __init__(self, inner: Any, chunks: Sequence[Any]) -> None:
        named = (pair for chunk in chunks for pair in chunk.named_parameters())
        self._names = {id(parameter): plain_name(name) for name, parameter in named}
        self._inner = inner

    def __call__(self) -> None:
        """Compare.

        Raises:
            StaleParameter: Somebody changed the model's weights and did not refresh the copies.
        """
        import torch

        # Anew each time: a parameter may have got other storage, and most optimizers cope with that.
        copies = [piece for piece in pieces(self._inner) if piece.is_copy]
        if not copies:
            return
        model, main = [sample(piece.values) for piece in copies], [sample(piece.main) for piece in copies]
        together = torch.cat(model)
        if torch.equal(torch.cat(main).to(together.dtype), together):
            return
        stale = [
            self._names.get(id(piece.parameter), "a parameter")
            for piece, values, copy in zip(copies, model, main, strict=True)
            if not torch.equal(copy.to(values.dtype), values)
        ]
        raise StaleParameter(
            f"the optimizer's fp32 copies and the model's weights disagree ({len(stale)} parameters, "
            f"first {stale[0]}): the step would overwrite the weights from the old copies",
            hint="call optimizer.reload_model_params() after writing weights, or use load_hf(..., optimizer=optimizer)",
        )


def sample(tensor: torch.Tensor) -> torch.Tensor:
    """Some elements of a contiguous tensor, evenly spread (a 1-D view)."""
    flat = tensor.detach().view(-1)
    return flat[:: max(1, flat.numel() // _SAMPLE)]
