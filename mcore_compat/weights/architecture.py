"""What a folder's ``config.json`` says about the model, in the old and the new spelling of transformers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from mcore_compat.errors import WeightsError

if TYPE_CHECKING:
    from pathlib import Path

Family = Literal["llama", "qwen2", "qwen3"]
Config = Mapping[str, Any]


class _Traits(NamedTuple):
    """What a family fixes in its code rather than in its configuration."""

    qkv_bias: bool
    qk_norm: bool
    head_dim: int | None
    kv_heads: int | None
    max_positions: int


# The last three are what transformers fills in where the file has no such key; None: derived from other keys.
FAMILIES: Mapping[str, _Traits] = {
    "llama": _Traits(qkv_bias=False, qk_norm=False, head_dim=None, kv_heads=None, max_positions=2048),
    "qwen2": _Traits(qkv_bias=True, qk_norm=False, head_dim=None, kv_heads=32, max_positions=32768),
    "qwen3": _Traits(qkv_bias=False, qk_norm=True, head_dim=128, kv_heads=32, max_positions=32768),
}

ROPE_KEYS: Mapping[str, tuple[str, ...]] = {
    "default": (),
    "linear": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
}

# Keys that change the computation, and the only values that the Megatron model reproduces.
_FIXED: Mapping[str, tuple[object, ...]] = {
    "hidden_act": ("silu",),
    "attention_bias": (False, None),
    "mlp_bias": (False, None),
    "use_sliding_window": (False, None),
    "quantization_config": (None,),
}


@dataclass(frozen=True)
class Architecture:
    """A dense Llama-family decoder.

    Attributes:
        family: Model family, the ``model_type`` of ``config.json``.
        num_layers: Decoder layers.
        hidden_size: Width of the residual stream.
        ffn_hidden_size: Width of the gated feed-forward layer.
        num_heads: Query heads.
        num_kv_heads: Key and value heads (query groups).
        head_dim: Width of one head; not always ``hidden_size / num_heads``.
        vocab_size: Rows of the embedding, without padding.
        max_positions: Context length.
        rms_eps: Epsilon of every norm.
        rope_theta: Base of the rotary frequencies.
        rope_scaling: ``rope_type`` ("linear" or "llama3") and its numbers; ``None``: unscaled.
        tied: Whether the output layer is the embedding.
        qkv_bias: Whether the query, key and value projections have a bias.
        qk_norm: Whether each query and key head is normalised.
    """

    family: Family
    num_layers: int
    hidden_size: int
    ffn_hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    max_positions: int
    rms_eps: float
    rope_theta: float
    rope_scaling: Mapping[str, str | float] | None = field(default=None, hash=False)
    tied: bool = False
    qkv_bias: bool = False
    qk_norm: bool = False

    def config_fields(self) -> dict[str, Any]:
        """Return the keywords of a Megatron ``TransformerConfig``, in the newest release's names.

        ``add_qkv_bias`` and ``qk_layernorm`` are there only where they are on, because the oldest releases
        have no such fields: 0.5.0 is the first with the former, 0.6.0 with the latter.
        """
        import torch.nn.functional as F

        options = {"add_qkv_bias": self.qkv_bias, "qk_layernorm": self.qk_norm}
        return {
            "num_layers": self.num_layers,
            "hidden_size": self.hidden_size,
            "num_attention_heads": self.num_heads,
            "num_query_groups": self.num_kv_heads,
            "kv_channels": self.head_dim,
            "ffn_hidden_size": self.ffn_hidden_size,
            "gated_linear_unit": True,
            "activation_func": F.silu,
            "normalization": "RMSNorm",
            "layernorm_epsilon": self.rms_eps,
            "add_bias_linear": False,
            "hidden_dropout": 0.0,
            "attention_dropout": 0.0,
            **{name: True for name, on in options.items() if on},
        }


def read_config(folder: Path) -> dict[str, Any]:
    """Return ``config.json`` as it is.

    Raises:
        WeightsError: No such folder or file, or it is not a JSON object.
    """
    path = folder / "config.json"
    if not path.is_file():
        what = "has no config.json" if folder.is_dir() else "does not exist"
        raise WeightsError(f"{folder} {what}", hint="give the folder of a Hugging Face model")
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise WeightsError(f"{path} is not JSON: {error}", hint="copy the file again") from error
    if not isinstance(config, dict):
        raise WeightsError(f"{path} holds a {type(config).__name__}, not an object", hint="copy the file again")
    return config


def read_architecture(folder: Path) -> Architecture:
    """Parse ``config.json`` of a Hugging Face folder. Loads neither torch nor transformers.

    Raises:
        WeightsError: No readable ``config.json``, an unknown ``model_type`` or kind of rope scaling, a
            missing or impossible value, or an option that the Megatron model cannot reproduce.
    """
    try:
        return _parse(read_config(folder))
    except (KeyError, TypeError, ValueError) as error:
        what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        hint = "use a dense model of the Llama family, or repair the file"
        raise WeightsError(f"{folder / 'config.json'}: {what}", hint=hint) from error


def _parse(config: Config) -> Architecture:
    family = _family(config)
    traits = FAMILIES[family]
    for key, allowed in _FIXED.items():
        if config.get(key, allowed[0]) not in allowed:
            raise ValueError(f"{key} is {config[key]!r}; only {allowed[0]!r} is supported")
    heads, hidden = _count(config, "num_attention_heads"), _count(config, "hidden_size")
    kv_heads = _count(config, "num_key_value_heads", traits.kv_heads or heads)
    if heads % kv_heads:
        raise ValueError(f"{heads} num_attention_heads cannot share {kv_heads} num_key_value_heads evenly")
    max_positions = _count(config, "max_position_embeddings", traits.max_positions)
    theta, scaling = _rope(config, max_positions)
    return Architecture(
        family=family,
        num_layers=_count(config, "num_hidden_layers"),
        hidden_size=hidden,
        ffn_hidden_size=_count(config, "intermediate_size"),
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=_count(config, "head_dim", traits.head_dim or hidden // heads),
        vocab_size=_count(config, "vocab_size"),
        max_positions=max_positions,
        rms_eps=float(config.get("rms_norm_eps", 1e-6)),
        rope_theta=theta,
        rope_scaling=scaling,
        tied=bool(config.get("tie_word_embeddings", False)),
        qkv_bias=traits.qkv_bias,
        qk_norm=traits.qk_norm,
    )


def _count(config: Config, key: str, default: int | None = None) -> int:
    """Return a positive integer; an absent or null key means the default, where there is one."""
    value = config[key] if default is None else config.get(key)
    if value is None and default is not None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{key} is {value!r}, expected a positive integer")
    return value


def _family(config: Config) -> Family:
    found = config.get("model_type")
    if found not in FAMILIES:
        raise ValueError(f"unknown model_type {found!r}; known: {', '.join(FAMILIES)}")
    return cast("Family", found)


def _rope(config: Config, max_positions: int) -> tuple[float, Mapping[str, str | float] | None]:
    """Return base and scaling. transformers 5 keeps both in ``rope_parameters``, earlier ones in two keys."""
    rope: Config = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if any(isinstance(value, Mapping) for value in rope.values()):
        raise ValueError("rope_parameters differ between layers; only one set for all is supported")
    theta = float(rope.get("rope_theta") or config.get("rope_theta") or 10000.0)
    kind = rope.get("rope_type") or rope.get("type") or "default"
    if kind not in ROPE_KEYS:
        raise ValueError(f"unknown rope scaling {kind!r}; known: {', '.join(ROPE_KEYS)}")
    fraction = rope.get("partial_rotary_factor") or config.get("partial_rotary_factor") or 1.0
    if fraction != 1.0:
        raise ValueError(f"partial_rotary_factor is {fraction}; only 1.0 is supported")
    if kind == "default":
        return theta, None
    defaults = {"original_max_position_embeddings": max_positions}
    values = {key: float(rope[key] if key in rope else defaults[key]) for key in ROPE_KEYS[kind]}
    return theta, {"rope_type": str(kind), **values}
