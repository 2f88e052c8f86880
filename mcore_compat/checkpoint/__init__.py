"""Checkpoints that any release and any layout can resume: actor, critic, optimizers, schedulers, RNG, trainer state.

A checkpoint is a folder of safetensors files and a manifest. Tensors are whole, unpadded, and named as in the
unsplit model, so nothing in them depends on who wrote them. Safetensors instead of torch's distributed checkpoint,
because the latter unpickles its metadata, and because each tensor here can be read, cut and checked alone.

==================  ======================================================================
``train_state.py``  what of a model is saved, and what loading gives back
``places.py``       the parameters of this rank and their place in the whole model
``gather.py``       model and optimizer → whole tensors
``fill.py``         whole tensors → model and optimizer
``files.py``        the folder: written at once or not at all, hashed, pruned
``ranks.py``        exchanges between ranks
``write.py``        ``save``
``read.py``         ``load``
==================  ======================================================================
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mcore_compat.checkpoint.files import latest as latest
    from mcore_compat.checkpoint.read import load_checkpoint as load
    from mcore_compat.checkpoint.train_state import Restored as Restored
    from mcore_compat.checkpoint.train_state import TrainState as TrainState
    from mcore_compat.checkpoint.write import save_checkpoint as save

__all__ = ["Restored", "TrainState", "latest", "load", "save"]

_HOME = {
    "Restored": ("train_state", "Restored"),
    "TrainState": ("train_state", "TrainState"),
    "latest": ("files", "latest"),
    "load": ("read", "load_checkpoint"),
    "save": ("write", "save_checkpoint"),
}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, function = _HOME[name]
    return getattr(import_module(f"{__name__}.{module}"), function)
