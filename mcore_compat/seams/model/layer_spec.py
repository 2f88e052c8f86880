"""The layer specification of a GPT model, with norms that work without Apex and Transformer Engine."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, get_args

from mcore_compat.errors import ConfigError
from mcore_compat.runtime import report
from mcore_compat.runtime.device import device
from mcore_compat.seams.keywords import supported

SpecKind = Literal["auto", "local", "te"]
_LAYER_NORMS = ("input_layernorm", "pre_mlp_layernorm")
_QK_NORMS = ("q_layernorm", "k_layernorm")


def layer_spec(config: Any, kind: SpecKind | Any) -> Any:
    """This release's specification of a decoder layer.

    Args:
        config: ``TransformerConfig``; experts, QK norm and normalisation are read from it.
        kind: ``local``: Megatron's own modules, norms of torch. ``te``: Transformer Engine. ``auto``: ``te`` on a GPU
            where Transformer Engine is installed, ``local`` elsewhere. Anything else is a specification already.

    Raises:
        ConfigError: No such kind, or ``te`` without Transformer Engine.
        FeatureUnavailable: This release's specification lacks something that the config asks for.
    """
    if not isinstance(kind, str):
        return kind
    if kind not in get_args(SpecKind):
        raise ConfigError(f"spec must be one of {', '.join(get_args(SpecKind))} or a ModuleSpec, found {kind!r}")
    if _uses_te(kind):
        from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_with_transformer_engine_spec

        return get_gpt_layer_with_transformer_engine_spec(
            **_spec_keywords(get_gpt_layer_with_transformer_engine_spec, config)
        )
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec

    spec = get_gpt_layer_local_spec(**_spec_keywords(get_gpt_layer_local_spec, config))
    _use_torch_norms(spec, qk_norm=getattr(config, "qk_layernorm", False))
    return spec


def _uses_te(kind: str) -> bool:
    available = _transformer_engine_installed()
    if kind == "te" and not available:
        raise ConfigError("layer_spec='te' needs Transformer Engine, which is not installed", hint="use 'local'")
    return kind == "te" or (kind == "auto" and available and device().type == "cuda")


def _transformer_engine_installed() -> bool:
    prepared = report()
    stood_in = prepared is not None and any(action.name == "transformer_engine" for action in prepared.actions)
    return not stood_in and importlib.util.find_spec("transformer_engine") is not None


@contextmanager
def final_norm(kind: SpecKind | Any) -> Iterator[None]:
    """While open, transformer blocks get our norm after the last layer where the layers have ours.

    Upstream takes that class from a module global: ``TENorm`` up to 0.7, ``LayerNormImpl`` since.
    """
    if not isinstance(kind, str) or _uses_te(kind):
        yield
        return
    from megatron.core.transformer import transformer_block

    from mcore_compat.runtime.norm import Norm

    name = "LayerNormImpl" if hasattr(transformer_block, "LayerNormImpl") else "TENorm"
    upstream = getattr(transformer_block, name)
    setattr(transformer_block, name, Norm)
    try:
        yield
    finally:
        setattr(transformer_block, name, upstream)


def _spec_keywords(function: Any, config: Any) -> dict[str, Any]:
    wanted = {
        "num_experts": getattr(config, "num_moe_experts", None),
        "moe_grouped_gemm": getattr(config, "moe_grouped_gemm", False),
        "qk_layernorm": getattr(config, "qk_layernorm", False),
    }
    return supported(function, wanted, what="layer spec")


def _use_torch_norms(spec: Any, *, qk_norm: bool) -> None:
    from mcore_compat.runtime.norm import Norm

    for name in _LAYER_NORMS:
        setattr(spec.submodules, name, Norm)
    if qk_norm:
        for name in _QK_NORMS:
            setattr(spec.submodules.self_attention.submodules, name, Norm)
