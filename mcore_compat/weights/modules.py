"""The parameters of model chunks under the names they have in the whole model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from mcore_compat.errors import WeightsError
from mcore_compat.weights.names import (
    EMBEDDING,
    FINAL_NORM,
    LM_HEAD,
    TIED_HEAD,
    VALUE_HEAD,
    Entry,
    layer_rules,
)

if TYPE_CHECKING:
    import torch

    from mcore_compat.weights.architecture import Architecture

Parameters = Mapping[Entry, "torch.nn.Parameter"]
_architectures: WeakKeyDictionary[Any, Architecture] = WeakKeyDictionary()


def remember(chunks: Sequence[Any], architecture: Architecture) -> None:
    """Note what these chunks were filled as."""
    for model in map(unwrapped, chunks):
        _architectures[model] = architecture


def remembered(chunks: Sequence[Any]) -> Architecture | None:
    """What :func:`remember` noted."""
    return _architectures.get(unwrapped(chunks[0]))


def unwrapped(chunk: Any) -> Any:
    """Walk through data-parallel and half-precision wrappers to the GPTModel."""
    while hasattr(chunk, "module"):
        chunk = chunk.module
    return chunk


def local_parameters(chunks: Sequence[Any], architecture: Architecture) -> dict[Entry, torch.nn.Parameter]:
    """Map the entries that this rank's chunks hold to their parameters, all of them.

    Layers are numbered by their own ``layer_number``, which every release counts from 1 over all pipeline
    stages and virtual stages.

    Raises:
        WeightsError: A parameter belongs to no entry, or an entry of a layer that is here has no parameter.
    """
    found: dict[Entry, torch.nn.Parameter] = {}
    for model in map(unwrapped, chunks):
        by_name = dict(model.named_parameters())
        for name, entry in _entries(model, architecture):
            found[entry] = _take(by_name, name, entry)
        if by_name:
            raise WeightsError(
                f"the model has {sorted(by_name)[0]}, which no {architecture.family} tensor fills",
                hint="build it with transformer_config(**architecture.config_fields())",
            )
    return found


def _take(by_name: dict[str, torch.nn.Parameter], name: str, entry: Entry) -> torch.nn.Parameter:
    """Take a parameter out, under its local name or under the Transformer Engine one."""
    fused = name.removesuffix(entry.rule.megatron) + entry.rule.te
    for candidate in (name, fused):
        if candidate in by_name:
            return by_name.pop(candidate)
    raise WeightsError(
        f"the model has no {name}, which {', '.join(entry.hf)} should fill",
        hint="build it with transformer_config(**architecture.config_fields())",
    )


def _entries(model: Any, architecture: Architecture) -> Iterator[tuple[str, Entry]]:
    """Yield local name and entry of what this chunk should hold."""
    if model.pre_process:
        yield EMBEDDING.megatron, Entry(EMBEDDING)
    for position, layer in enumerate(model.decoder.layers):
        for rule in layer_rules(architecture):
            yield f"decoder.layers.{position}.{rule.megatron}", Entry(rule, layer.layer_number - 1)
    if model.post_process:
        yield FINAL_NORM.megatron, Entry(FINAL_NORM)
        yield from _head(model, architecture)


def _head(model: Any, architecture: Architecture) -> Iterator[tuple[str, Entry]]:
    """A tied head on the embedding's stage has no parameter of its own; on another stage it has a copy."""
    weight = model.output_layer.weight
    if weight is not None and tuple(weight.shape) == (1, architecture.hidden_size):
        yield VALUE_HEAD.megatron, Entry(VALUE_HEAD)
        return
    if bool(model.share_embeddings_and_output_weights) != architecture.tied:
        raise WeightsError(
            f"the model {'does not share' if architecture.tied else 'shares'} embedding and output weights, "
            f"but tie_word_embeddings is {architecture.tied}",
            hint="build it with share_embeddings=architecture.tied",
        )
    if weight is not None:
        head = TIED_HEAD if architecture.tied else LM_HEAD
        yield head.megatron, Entry(head)
