"""Megatron model → complete Hugging Face folder, written at once or not at all."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from mcore_compat.errors import WeightsError
from mcore_compat.weights.architecture import read_architecture, read_config
from mcore_compat.weights.export import iter_weights
from mcore_compat.weights.names import VALUE_HEAD

if TYPE_CHECKING:
    from mcore_compat.contracts import Groups

# What a folder needs besides config and weights to tokenize and to generate.
COMPANIONS = (
    "tokenizer*",
    "vocab.*",
    "merges.txt",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template*",
    "generation_config.json",
    "*.tiktoken",
    "LICENSE*",
)


def save_hf(chunks: Sequence[Any], folder: Path, source_folder: Path, groups: Groups) -> None:
    """Write the model as a Hugging Face folder; rank 0 writes, all ranks call.

    The folder appears complete, by a rename, and replaces one that was there. It is there when the call
    returns on rank 0; other ranks may return earlier.

    Args:
        chunks: Model chunks of this rank, wrapped or not.
        folder: Where to.
        source_folder: What the model was loaded from; configuration and tokenizer come from there. A value
            model gets the configuration of a token classifier with one label.
        groups: Tensor- and pipeline-parallel groups; of the data-parallel group only the first rank takes
            part.

    Raises:
        WeightsError: As :func:`~mcore_compat.weights.export.iter_weights`, the source folder is unusable, or
            ``folder`` holds something else than a model.
        OSError: The folder cannot be written.
    """
    from mcore_compat.seams._arguments import require_chunks
    from mcore_compat.seams.param_sync import finish_pending

    require_chunks(chunks)
    architecture = read_architecture(Path(source_folder))
    finish_pending(chunks)
    if groups.dp_cp.rank != 0:
        return
    stream = iter_weights(chunks, architecture, groups, ranks=(0,))
    if dist.is_initialized() and dist.get_rank() != 0:
        for _ in stream:
            pass
        return
    write_folder(stream, Path(folder), Path(source_folder))


def write_folder(weights: Iterable[tuple[str, torch.Tensor]], folder: Path, source_folder: Path) -> None:
    """Write a stream of tensors with the configuration and tokenizer of ``source_folder``, atomically."""
    from huggingface_hub import save_torch_state_dict

    state = {name: tensor.cpu() for name, tensor in weights}
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as scratch:
        fresh = Path(scratch) / "new"
        fresh.mkdir()
        for pattern in COMPANIONS:
            for path in filter(Path.is_file, source_folder.glob(pattern)):
                shutil.copyfile(path, fresh / path.name)
        config = exported_config(read_config(source_folder), state)
        written = fresh / "config.json"
        written.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
        save_torch_state_dict(state, fresh, metadata={"format": "pt"})
        for path in fresh.iterdir():
            path.chmod(written.stat().st_mode)  # safetensors lets only the owner read its files
        if folder.exists():
            _require_model(folder)
            folder.rename(Path(scratch) / "old")
        fresh.rename(folder)


def _require_model(folder: Path) -> None:
    if not folder.is_dir() or (any(folder.iterdir()) and not (folder / "config.json").is_file()):
        raise WeightsError(
            f"{folder} is there and holds no model; saving one would delete what it holds",
            hint="give a folder of its own",
        )


def exported_config(source: Mapping[str, Any], state: Mapping[str, torch.Tensor]) -> dict[str, Any]:
    """Return the source's configuration with the dtype (and for a value model the head) of the weights."""
    dtype = str(next(iter(state.values())).dtype).removeprefix("torch.")
    key = "dtype" if "dtype" in source else "torch_dtype"
    config = {name: value for name, value in source.items() if name not in ("dtype", "torch_dtype")} | {key: dtype}
    if VALUE_HEAD.hf[0] not in state:
        return config
    body = {"llama": "Llama", "qwen2": "Qwen2", "qwen3": "Qwen3"}[config["model_type"]]
    labels = {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}
    return config | {"architectures": [f"{body}ForTokenClassification"], "num_labels": 1} | labels
