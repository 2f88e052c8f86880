"""``transformer_engine``: releases up to 0.7 subclass its layers even when only local layers are used."""

from __future__ import annotations

from types import ModuleType

from .build import refusing_class, tree

# Low enough that releases define no class for a feature that came later.
VERSION = "0.5.0"


def build() -> dict[str, ModuleType]:
    """Make the classes that are subclassed; ``pytorch.attention`` is left out on purpose.

    Megatron splits query, key and value with plain torch where that submodule is absent.
    """
    import torch

    layers = ("DotProductAttention", "LayerNormLinear", "Linear")
    pytorch = {name: refusing_class(name, "transformer_engine", torch.nn.Module) for name in layers}
    recipe = {"DelayedScaling": refusing_class("DelayedScaling", "transformer_engine")}
    return tree(
        {
            "transformer_engine": {"__version__": VERSION},
            "transformer_engine.common": {},
            "transformer_engine.common.recipe": recipe,
            "transformer_engine.pytorch": pytorch,
        }
    )
