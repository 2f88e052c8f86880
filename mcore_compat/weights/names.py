"""The one table of parameter names, and how each tensor is cut over tensor-parallel ranks.

Every Hugging Face tensor is cut evenly along one dimension; what Megatron fuses into one parameter is fused
after the cut. Query groups lie one after the other in all three projections, so that holds for grouped
attention too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from mcore_compat.errors import ConfigError

if TYPE_CHECKING:
    from mcore_compat.weights.architecture import Architecture

Cut = Literal["rows", "columns", "vocab", "none"]
Fusion = Literal["single", "qkv", "gate_up"]


@dataclass(frozen=True)
class Rule:
    """One Megatron parameter and its Hugging Face tensors.

    Attributes:
        megatron: Name in the local layer spec, below the layer where ``layer`` is true.
        hf: Names of the tensors, in the order in which they are fused.
        shapes: Names of the dimensions of those tensors, see :func:`_size`.
        cut: Rows or columns of each tensor go to the ranks; ``vocab``: rows, padded; ``none``: replicated.
        fusion: How the cut tensors become one parameter.
        te: Name in the Transformer Engine layer spec, where it differs.
        needs: Flag of the architecture without which there is no such parameter.
        layer: Whether every layer has one.
    """

    megatron: str
    hf: tuple[str, ...]
    shapes: tuple[str, ...]
    cut: Cut = "none"
    fusion: Fusion = "single"
    te: str = ""
    needs: Literal["qkv_bias", "qk_norm", ""] = ""
    layer: bool = True


# fmt: off
_EMBED = ("model.embed_tokens.weight",)
_QKV = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
LAYER_RULES = (
    Rule("input_layernorm.weight", ("input_layernorm.weight",), ("hidden",),
         te="self_attention.linear_qkv.layer_norm_weight"),
    Rule("self_attention.linear_qkv.weight", tuple(f"{name}.weight" for name in _QKV),
         ("query,hidden", "kv,hidden", "kv,hidden"), "rows", "qkv"),
    Rule("self_attention.linear_qkv.bias", tuple(f"{name}.bias" for name in _QKV),
         ("query", "kv", "kv"), "rows", "qkv", needs="qkv_bias"),
    Rule("self_attention.q_layernorm.weight", ("self_attn.q_norm.weight",), ("head",), needs="qk_norm"),
    Rule("self_attention.k_layernorm.weight", ("self_attn.k_norm.weight",), ("head",), needs="qk_norm"),
    Rule("self_attention.linear_proj.weight", ("self_attn.o_proj.weight",), ("hidden,query",), "columns"),
    Rule("pre_mlp_layernorm.weight", ("post_attention_layernorm.weight",), ("hidden",),
         te="mlp.linear_fc1.layer_norm_weight"),
    Rule("mlp.linear_fc1.weight", ("mlp.gate_proj.weight", "mlp.up_proj.weight"),
         ("ffn,hidden", "ffn,hidden"), "rows", "gate_up"),
    Rule("mlp.linear_fc2.weight", ("mlp.down_proj.weight",), ("hidden,ffn",), "columns"),
)
EMBEDDING = Rule("embedding.word_embeddings.weight", _EMBED, ("vocab,hidden",), "vocab", layer=False)
FINAL_NORM = Rule("decoder.final_layernorm.weight", ("model.norm.weight",), ("hidden",), layer=False)
LM_HEAD = Rule("output_layer.weight", ("lm_head.weight",), ("vocab,hidden",), "vocab", layer=False)
TIED_HEAD = Rule("output_layer.weight", _EMBED, ("vocab,hidden",), "vocab", layer=False)
VALUE_HEAD = Rule("output_layer.weight", ("score.weight",), ("one,hidden",), layer=False)
# fmt: on

HEAD_NAMES = frozenset((*LM_HEAD.hf, *VALUE_HEAD.hf))


@dataclass(frozen=True)
class Entry:
    """A rule at one place; ``layer`` counts from 0 over all stages and is ``None`` outside the layers."""

    rule: Rule
    layer: int | None = None

    @property
    def hf(self) -> tuple[str, ...]:
        """Full Hugging Face names."""
        return tuple(f"model.layers.{self.layer}.{name}" if self.rule.layer else name for name in self.rule.hf)

    @property
    def megatron(self) -> str:
        """Full Megatron name, with the layer's number over all stages."""
        return f"decoder.layers.{self.layer}.{self.rule.megatron}" if self.rule.layer else self.rule.megatron


def layer_rules(architecture: Architecture) -> Iterator[Rule]:
    """Yield the rules of a layer of this architecture."""
    return (rule for rule in LAYER_RULES if not rule.needs or getattr(architecture, rule.needs))


def body_entries(architecture: Architecture) -> Iterator[Entry]:
    """Yield every entry except the head, in the order of the forward pass."""
    yield Entry(EMBEDDING)
    for layer in range(architecture.num_layers):
        yield from (Entry(rule, layer) for rule in layer_rules(architecture))
    yield Entry(FINAL_NORM)


def hf_shape(architecture: Architecture, rule: Rule, part: int) -> tuple[int, ...]:
    """Return the shape of a rule's Hugging Face tensor number ``part``."""
    return tuple(_size(architecture, name) for name in rule.shapes[part].split(","))


def _size(architecture: Architecture, name: str) -> int:
    sizes = {
        "one": 1,
        "head": architecture.head_dim,
        "hidden": architecture.hidden_size,
        "ffn": architecture.ffn_hidden_size,
        "query": architecture.num_heads * architecture.head_dim,
        "kv": architecture.num_kv_heads * architecture.head_dim,
        "vocab": architecture.vocab_size,
    }
    return sizes[name]


def cut_dimension(rule: Rule) -> int | None:
    """Return the dimension along which the rule's tensors are cut, ``None`` where every rank has all."""
    return {"rows": 0, "vocab": 0, "columns": 1, "none": None}[rule.cut]


def local_shape(architecture: Architecture, rule: Rule, tp: int, padded_vocab: int) -> tuple[int, ...]:
    """Return the shape of the Megatron parameter on one of ``tp`` ranks."""
    shapes: Sequence[list[int]] = [list(hf_shape(architecture, rule, part)) for part in range(len(rule.hf))]
    total = [sum(shape[0] for shape in shapes), *shapes[0][1:]]
    if rule.cut == "vocab":
        total[0] = padded_vocab
    dimension = cut_dimension(rule)
    if dimension is not None:
        total[dimension] //= tp
    return tuple(total)


def check_tensor_parallel(architecture: Architecture, tp: int) -> None:
    """Refuse a tensor-parallel size that would cut through a head.

    Raises:
        ConfigError: It does not divide the heads, the key-value heads or the feed-forward width.
    """
    for what, size in (
        ("attention heads", architecture.num_heads),
        ("key-value heads", architecture.num_kv_heads),
        ("feed-forward columns", architecture.ffn_hidden_size),
    ):
        if size % tp:
            raise ConfigError(f"tensor-parallel size {tp} does not divide {size} {what}", hint="choose a smaller one")
