"""What runs in processes of its own, with one release of Megatron-Core in front."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import torch

import mcore_compat
from mcore_compat.errors import McoreCompatError
from mcore_compat.weights import Architecture, inverse_frequencies, read_architecture
from tests.weights.folders import some_tokens

PADDED_TO = 128
NOISE = 7.0


def logits_and_exports(folders: dict[str, str], out: str) -> dict[str, str]:
    """For each folder: load, save the logits and the exported folder; returns errors by kind, "" for none."""
    mcore_compat.prepare("cpu")
    groups = mcore_compat.init_parallel()
    mcore_compat.seed(1)
    return {kind: _attempt(Path(folder), Path(out) / kind, groups) for kind, folder in folders.items()}


def streams(folders: dict[str, str], sizes: dict[str, int]) -> dict[str, Any]:
    """For each folder, in one layout: load over noise, stream; returns report and digests by kind."""
    mcore_compat.prepare("cpu")
    groups = mcore_compat.init_parallel(**sizes)
    mcore_compat.seed(1)
    return {kind: _stream(Path(folder), groups) for kind, folder in folders.items()}


def value_folder(source: str, out: str, sizes: dict[str, int]) -> dict[str, Any]:
    """Load a language model into a critic, save it, load that into a second critic; returns both reports."""
    mcore_compat.prepare("cpu")
    groups = mcore_compat.init_parallel(**sizes)
    mcore_compat.seed(1)
    architecture = read_architecture(Path(source))
    first, second = (build(architecture, head="value") for _ in range(2))
    noise(second)
    fresh = mcore_compat.load_hf(Path(source), first, groups)
    mcore_compat.save_hf(first, Path(out), Path(source), groups)
    torch.distributed.barrier()
    again = mcore_compat.load_hf(Path(out), second, groups)
    streamed = [dict(mcore_compat.iter_weights(chunks, architecture, groups)) for chunks in (first, second)]
    values = forward(second[0], some_tokens(architecture.vocab_size)) if sizes.get("pp", 1) == 1 else None
    return {
        "new": [fresh.newly_initialized, again.newly_initialized],
        "unexpected": [fresh.unexpected, again.unexpected],
        "names": list(streamed[0]),
        "equal": all(torch.equal(streamed[0][name], streamed[1][name]) for name in streamed[0]),
        "values": None if values is None else values.squeeze(-1).tolist(),
    }


def refusals(good: str, folders: dict[str, str], rows: list[int], sizes: dict[str, int]) -> list[Any]:
    """Load each folder into models of the good one, with each number of rows.

    Returns, for each number, the messages by name ("" for none) and whether the model is as it was built.
    """
    mcore_compat.prepare("cpu")
    groups = mcore_compat.init_parallel(**sizes)
    mcore_compat.seed(1)
    results = []
    for count in rows:
        chunks = build(read_architecture(Path(good)), padded_vocab=count)
        before = [parameter.clone() for parameter in chunks[0].parameters()]
        messages = {name: _message(Path(folder), chunks, groups) for name, folder in folders.items()}
        pairs = zip(before, chunks[0].parameters(), strict=True)
        results.append([messages, all(torch.equal(old, new) for old, new in pairs)])
    return results


def build(architecture: Architecture, head: Any = "lm", padded_vocab: int | None = None) -> list[Any]:
    """Build this rank's chunks."""
    config = mcore_compat.transformer_config(**architecture.config_fields())
    return mcore_compat.gpt_model(
        config,
        vocab_size=padded_vocab or -(-architecture.vocab_size // PADDED_TO) * PADDED_TO,
        max_sequence_length=architecture.max_positions,
        head=head,
        share_embeddings=architecture.tied,
        rotary_base=architecture.rope_theta,
        inverse_frequencies=inverse_frequencies(architecture),
    )


def noise(chunks: list[Any]) -> None:
    """Fill all parameters with a value that no folder holds."""
    for chunk in chunks:
        for parameter in chunk.parameters():
            parameter.data.fill_(NOISE)


def forward(model: Any, tokens: torch.Tensor) -> torch.Tensor:
    """Run a whole model."""
    length = tokens.shape[1]
    positions = torch.arange(length).expand_as(tokens)
    mask = torch.ones(length, length, dtype=torch.bool).triu(1)[None, None]
    with torch.no_grad():
        output: torch.Tensor = model.eval()(tokens, positions, mask)
    return output


def _attempt(folder: Path, out: Path, groups: mcore_compat.Groups) -> str:
    try:
        architecture = read_architecture(folder)
        chunks = build(architecture)
        noise(chunks)
        storages = [parameter.data_ptr() for parameter in chunks[0].parameters()]
        report = mcore_compat.load_hf(folder, chunks, groups)
        assert storages == [parameter.data_ptr() for parameter in chunks[0].parameters()], "a parameter was rebound"
        assert not report.newly_initialized
        assert not report.unexpected
        logits = forward(chunks[0], some_tokens(architecture.vocab_size))
        mcore_compat.save_hf(chunks, out, folder, groups)
        torch.save(logits, out / "logits.pt")
    except McoreCompatError as error:
        return f"{type(error).__name__}: {error}"
    return ""


def _stream(folder: Path, groups: mcore_compat.Groups) -> dict[str, Any]:
    architecture = read_architecture(folder)
    chunks = build(architecture)
    noise(chunks)
    report = mcore_compat.load_hf(folder, chunks, groups)
    pairs = list(mcore_compat.iter_weights(chunks))
    pointers = {parameter.data_ptr() for chunk in chunks for parameter in chunk.parameters()}
    aliased = [name for name, tensor in pairs if tensor.data_ptr() in pointers]
    assert not aliased, f"views of parameters: {aliased}"
    return {
        "new": report.newly_initialized,
        "unexpected": report.unexpected,
        "digests": [(name, list(tensor.shape), digest(tensor)) for name, tensor in pairs],
        "padding": _padding(chunks[0]),
        "left over": [name for chunk in chunks for name, p in chunk.named_parameters() if bool((p == NOISE).any())],
    }


def _padding(model: Any) -> dict[str, int]:
    """Count the zero rows at the end of this rank's vocabulary parameters."""
    vocabulary = {n: p for n, p in model.named_parameters() if "word_embeddings" in n or "output_layer" in n}
    return {name: int((~parameter.any(dim=1)).sum()) for name, parameter in vocabulary.items()}


def _message(folder: Path, chunks: list[Any], groups: mcore_compat.Groups) -> str:
    try:
        mcore_compat.load_hf(folder, chunks, groups)
    except McoreCompatError as error:
        return f"{type(error).__name__}: {error}"
    return ""


def digest(tensor: torch.Tensor) -> str:
    """Hash a tensor's bits."""
    return hashlib.sha256(tensor.contiguous().view(torch.uint8).numpy().tobytes()).hexdigest()
