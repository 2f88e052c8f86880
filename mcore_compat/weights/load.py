"""Hugging Face folder → Megatron model, in place."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch

from mcore_compat.contracts import LoadReport
from mcore_compat.errors import WeightsError
from mcore_compat.weights.architecture import read_architecture
from mcore_compat.weights.folder import WeightFolder
from mcore_compat.weights.modules import local_parameters, remember
from mcore_compat.weights.names import (
    HEAD_NAMES,
    VALUE_HEAD,
    Entry,
    body_entries,
    check_tensor_parallel,
    cut_dimension,
    hf_shape,
    local_shape,
)
from mcore_compat.weights.tensors import fuse, pad_rows

if TYPE_CHECKING:
    from mcore_compat.contracts import Groups
    from mcore_compat.weights.architecture import Architecture


class ReloadsParameters(Protocol):
    """An optimizer that can copy the model's weights into its fp32 main parameters."""

    def reload_model_params(self) -> Any:
        """Copy them."""
        ...


class _Loader:
    """One rank's view of a folder: knows how many pieces there are and which one is ours."""

    def __init__(self, source: WeightFolder, architecture: Architecture, groups: Groups) -> None:
        self.source, self.architecture = source, architecture
        self.tp, self.rank = groups.tp.size, groups.tp.rank

    def check_shapes(self, entry: Entry, padded_vocab: int | None) -> None:
        """Compare an entry's tensors with the architecture.

        A vocabulary may come with its padding; a stage that holds no part of it does not know how much that
        is.
        """
        for part, name in enumerate(entry.hf):
            found, expected = self.source.shape(name), hf_shape(self.architecture, entry.rule, part)
            allowed = {expected}
            if entry.rule.cut == "vocab":
                rows = max(found[0], expected[0]) if padded_vocab is None else padded_vocab
                allowed.add((rows, *expected[1:]))
            if found not in allowed:
                wanted = " or ".join(map(str, sorted(allowed)))
                raise WeightsError(
                    f"{name} in {self.source.folder} has shape {found}, expected {wanted}",
                    hint="compare config.json with the weights",
                )

    def check_parameter(self, entry: Entry, parameter: torch.Tensor) -> None:
        """Compare a model parameter with the architecture."""
        rows, found = parameter.shape[0] * self.tp, tuple(parameter.shape)
        if entry.rule.cut == "vocab" and rows < self.architecture.vocab_size:
            raise WeightsError(
                f"{entry.megatron} has {rows} rows, the folder's vocabulary {self.architecture.vocab_size}",
                hint="build the model with vocab_size of at least that",
            )
        expected = local_shape(self.architecture, entry.rule, self.tp, rows)
        if found != expected:
            raise WeightsError(
                f"{entry.megatron} has shape {found} in the model, {', '.join(entry.hf)} need {expected}",
                hint="build it with transformer_config(**architecture.config_fields())",
            )

    def value(self, entry: Entry, rows: int) -> torch.Tensor:
        """Read this rank's value of a parameter that has ``rows`` rows."""
        if entry.rule.cut == "vocab":
            return self._vocabulary(entry.hf[0], rows)
        dimension = cut_dimension(entry.rule)
        return fuse(self.architecture, entry.rule, [self._piece(name, dimension) for name in entry.hf])

    def _piece(self, name: str, dimension: int | None) -> torch.Tensor:
        size = 0 if dimension is None else self.source.shape(name)[dimension] // self.tp
        return self.source.read(name, dimension, self.rank * size, (self.rank + 1) * size)

    def _vocabulary(self, name: str, rows: int) -> torch.Tensor:
        start, stop = (min(bound * rows, self.architecture.vocab_size) for bound in (self.rank, self.rank + 1))
        return pad_rows(self.source.read(name, 0, start, stop), rows)


def load_hf(
    folder: Path, chunks: Sequence[Any], groups: Groups, *, optimizer: ReloadsParameters | None = None
) -> LoadReport:
    """Fill this rank's model chunks from a Hugging Face folder.

    Values are copied into the parameters' own storage, in the parameters' dtype. A rank reads only its own
    slices. Nothing is written before every tensor of the folder and every parameter of the model have been
    checked.

    Args:
        folder: ``config.json`` and safetensors.
        chunks: Model chunks of this rank, wrapped or not.
        groups: The tensor-parallel group says which slices are ours.
        optimizer: Built before; its fp32 main parameters are refreshed.

    Returns:
        What was filled. A value head without ``score.weight`` in the folder stays as it is and is named
        there. Tensors of the other kind of head are no surprise and not listed as unexpected.

    Raises:
        WeightsError: The folder is incomplete or broken, or does not fit the model; names the tensor and both
            shapes.
        ConfigError: These are no chunks, they are offloaded, or the tensor-parallel size does not divide heads or
            feed-forward width.
    """
    from mcore_compat.seams._arguments import require_chunks
    from mcore_compat.seams._memory import require_here

    require_chunks(chunks)
    require_here(chunks, "load_hf", "params")
    architecture = read_architecture(Path(folder))
    check_tensor_parallel(architecture, groups.tp.size)
    parameters = local_parameters(chunks, architecture)
    with WeightFolder(Path(folder)) as source:
        loader = _Loader(source, architecture, groups)
        body = tuple(body_entries(architecture))
        fresh = tuple(entry for entry in parameters if entry.rule is VALUE_HEAD and not _has_value_head(loader))
        filled = {entry: parameter for entry, parameter in parameters.items() if entry not in fresh}
        _check(loader, body, filled)
        for entry, parameter in filled.items():
            _copy(loader.value(entry, parameter.shape[0]), parameter)
        expected = {name for entry in body for name in entry.hf} | HEAD_NAMES
        unexpected = tuple(name for name in source.names if name not in expected)
    remember(chunks, architecture)
    if optimizer is not None:
        optimizer.reload_model_params()
    return LoadReport(tuple(e.megatron for e in filled), tuple(e.megatron for e in fresh), unexpected)


def _has_value_head(loader: _Loader) -> bool:
    name, shape = VALUE_HEAD.hf[0], hf_shape(loader.architecture, VALUE_HEAD, 0)
    return name in loader.source.names and loader.source.shape(name) == shape


def _check(loader: _Loader, body: Sequence[Entry], filled: dict[Entry, torch.nn.Parameter]) -> None:
    """Check what is ours of the model, then the whole folder on every rank, so that all ranks fail alike."""
    for entry, parameter in filled.items():
        loader.check_parameter(entry, parameter)
    padded = {p.shape[0] * loader.tp for entry, p in filled.items() if entry.rule.cut == "vocab"}
    for entry in dict.fromkeys([*body, *filled]):
        loader.check_shapes(entry, max(padded, default=None))


@torch.no_grad()
def _copy(value: torch.Tensor, parameter: torch.nn.Parameter) -> None:
    parameter.data.copy_(value)
