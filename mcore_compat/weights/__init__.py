"""Hugging Face Llama-family folders ⇄ Megatron's GPTModel, for any tensor- and pipeline-parallel size.

======================  ==================================================================
``architecture.py``     what ``config.json`` says (no torch)
``names.py``            the one table of names, and how each tensor is cut (no torch)
``tensors.py``          pure functions: fuse and unfuse, pad
``rotary.py``           rotary frequencies
``folder.py``           safetensors folders, read lazily
``modules.py``          the parameters of model chunks, by their row of that table
``megatron.py``         the parameters of any GPT chunks, under Megatron's own names
``load.py``             folder → model
``export.py``           model → stream of full tensors
``save.py``             model → folder
======================  ==================================================================

Nothing here imports Megatron, and reading an architecture imports no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mcore_compat.weights.architecture import Architecture, read_architecture
    from mcore_compat.weights.export import iter_weights, sync
    from mcore_compat.weights.load import load_hf
    from mcore_compat.weights.rotary import inverse_frequencies
    from mcore_compat.weights.save import save_hf

__all__ = [
    "Architecture",
    "inverse_frequencies",
    "iter_weights",
    "load_hf",
    "read_architecture",
    "save_hf",
    "sync",
]

_HOME = {
    "Architecture": "architecture",
    "inverse_frequencies": "rotary",
    "iter_weights": "export",
    "load_hf": "load",
    "read_architecture": "architecture",
    "save_hf": "save",
    "sync": "export",
}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
