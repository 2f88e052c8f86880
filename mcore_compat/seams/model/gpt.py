"""A decoder-only language model, or the critic made of the same body."""

from __future__ import annotations

import copy
import inspect
import os
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, get_args

from mcore_compat.contracts import Head
from mcore_compat.errors import ConfigError
from mcore_compat.runtime.device import device
from mcore_compat.seams.keywords import supported
from mcore_compat.seams.model.build import build_model
from mcore_compat.seams.model.layer_spec import SpecKind, final_norm, layer_spec

if TYPE_CHECKING:
    import torch


def gpt_model(
    config: Any,
    *,
    vocab_size: int,
    max_sequence_length: int,
    head: Head = "lm",
    share_embeddings: bool = False,
    position_embedding_type: str = "rope",
    rotary_base: float = 10000,
    rotary_percent: float = 1.0,
    inverse_frequencies: torch.Tensor | None = None,
    spec: SpecKind | Any = "auto",
    **keywords: Any,
) -> list[Any]:
    """Build this rank's chunks of a GPT model.

    The config is copied, so training hooks set for this model never act on another one.

    Args:
        config: From :func:`mcore_compat.transformer_config`.
        vocab_size: Rows of the embedding, padded so that ``tp`` divides them.
        max_sequence_length: Longest sequence (positions).
        head: ``lm``: logits [R, T, V/tp]. ``value``: values [R, T, 1] in fp32 from a head of its own, never tied.
        share_embeddings: Tie the output layer to the embedding (``lm`` only).
        position_embedding_type: ``rope`` or ``learned_absolute``.
        rotary_base: Base period of the rotary embedding.
        rotary_percent: Rotated fraction of each head.
        inverse_frequencies: fp32 [rotary dim / 2], instead of upstream's; so any rope scaling works on any release.
        spec: ``auto``, ``local``, ``te``, or a ``ModuleSpec`` of your own.
        **keywords: Further keywords of ``GPTModel`` under their newest names.

    Raises:
        ConfigError: A combination that Megatron refuses, or a choice that there is not.
        FeatureUnavailable: A keyword that this release does not have.
    """
    config = copy.deepcopy(config)
    _check(config, vocab_size, head, position_embedding_type)
    _forget_attention_backend()
    wanted = {
        "vocab_size": vocab_size,
        "max_sequence_length": max_sequence_length,
        "share_embeddings_and_output_weights": share_embeddings and head == "lm",
        "position_embedding_type": position_embedding_type,
        "rotary_percent": rotary_percent,
        "rotary_base": rotary_base,
        "transformer_layer_spec": layer_spec(config, spec),
        **keywords,
    }
    with final_norm(spec):
        return build_model(partial(_build, config, wanted, head, inverse_frequencies))


def _build(
    config: Any,
    wanted: Mapping[str, Any],
    head: Head,
    inverse_frequencies: torch.Tensor | None,
    pre_process: bool,
    post_process: bool,
    vp_stage: int | None,
) -> Any:
    from megatron.core.models.gpt import GPTModel

    from mcore_compat.seams.model.value_head import ValueHead

    stage = {"pre_process": pre_process, "post_process": post_process, "vp_stage": vp_stage}
    # Releases without vp_stage read the chunk's number from parallel_state, where build_model has put it.
    arguments = supported(GPTModel, {**wanted, **stage}, what="GPTModel", off={"vp_stage": vp_stage})
    model = GPTModel(config=config, parallel_output=True, **arguments)
    if inverse_frequencies is not None:
        model.rotary_pos_emb.inv_freq = inverse_frequencies.to(device())
    if head == "value" and post_process:
        model.output_layer = ValueHead(config)
    return model


def _check(config: Any, vocab_size: int, head: Head, position_embedding_type: str) -> None:
    _check_divisible(config, vocab_size)
    _check_choices(head, position_embedding_type)


def _check_choices(head: Head, position_embedding_type: str) -> None:
    from megatron.core.models.gpt import GPTModel

    parameter = inspect.signature(GPTModel).parameters["position_embedding_type"]
    choices = {
        "head": (head, get_args(Head)),
        parameter.name: (position_embedding_type, get_args(parameter.annotation)),
    }
    for name, (found, known) in choices.items():
        if known and found not in known:  # upstream takes any text, and then embeds no positions
            raise ConfigError(f"{name} must be one of {', '.join(known)}, found {found!r}")


def _forget_attention_backend() -> None:
    """The constructor exports the attention backend and asserts that nobody did before: a second model would fail."""
    for switch in ("NVTE_FLASH_ATTN", "NVTE_FUSED_ATTN", "NVTE_UNFUSED_ATTN"):
        os.environ.pop(switch, None)


def _check_divisible(config: Any, vocab_size: int) -> None:
    tp, pp = config.tensor_model_parallel_size, config.pipeline_model_parallel_size
    stages = pp * (config.virtual_pipeline_model_parallel_size or 1)
    heads = {"attention heads": config.num_attention_heads, "key-value heads": config.num_query_groups}
    sizes = {**heads, "vocabulary rows": vocab_size, "feed-forward size": config.ffn_hidden_size}
    for what, size in sizes.items():
        if size and size % tp:
            raise ConfigError(
                f"tensor-parallel size {tp} does not divide the {size} {what}",
                hint="choose a tensor_model_parallel_size that divides it"
                if "vocab" not in what
                else f"pad the vocabulary to a multiple of {tp}",
            )
    if config.num_layers % stages:
        raise ConfigError(f"{config.num_layers} layers cannot be split evenly over {stages} pipeline stages")
