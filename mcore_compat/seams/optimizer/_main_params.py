"""In half precision the optimizer updates fp32 copies. Do they still belong to the weights that the model holds?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from mcore_compat.errors import StaleParameter
from mcore_compat.seams.optimizer._groups import plain_name

if TYPE_CHECKING:
    import torch

# Where upstream's two mixed-precision optimizers keep (parameters, model values of this rank, fp32 copies).
_PLACES = (
    ("float16_groups", "float16_groups", "fp32_from_float16_groups"),
    ("model_float16_groups", "shard_float16_groups", "shard_fp32_from_float16_groups"),
)
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
        names = {id(parameter): plain_name(name) for name, parameter in named}
        pairs = list(_pairs(inner))
        self._names = [names.get(id(parameter), "a parameter") for parameter, _, _ in pairs]
        self._model = [_sample(values) for _, values, _ in pairs]
        self._main = [_sample(copy) for _, _, copy in pairs]

    def __call__(self) -> None:
        """Compare.

        Raises:
            StaleParameter: Somebody changed the model's weights and did not refresh the copies.
        """
        import torch

        if not self._model:
            return
        model = torch.cat(self._model)
        if torch.equal(torch.cat(self._main).to(model.dtype), model):
            return
        stale = [
            name
            for name, values, copy in zip(self._names, self._model, self._main, strict=True)
            if not torch.equal(copy.to(values.dtype), values)
        ]
        raise StaleParameter(
            f"the optimizer's fp32 copies and the model's weights disagree ({len(stale)} parameters, "
            f"first {stale[0]}): the step would overwrite the weights from the old copies",
            hint="call optimizer.reload_model_params() after writing weights, or use load_hf(..., optimizer=optimizer)",
        )


def _pairs(inner: Any) -> Iterator[tuple[Any, torch.Tensor, torch.Tensor]]:
    for optimizer in getattr(inner, "chained_optimizers", [inner]):
        for names in _PLACES:
            groups = [getattr(optimizer, name, []) for name in names]
            for parameters, values, copies in zip(*groups, strict=True):
                for triple in zip(parameters, values, copies, strict=True):
                    if all(tensor is not None for tensor in triple):  # fp8 parameters have no 16-bit values
                        yield triple


def _sample(tensor: torch.Tensor) -> torch.Tensor:
    flat = tensor.detach().view(-1)
    return flat[:: max(1, flat.numel() // _SAMPLE)]
