"""Step-0 parity of plain torch modules: what users of TRL or DeepSpeed have."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from mcore_compat import ConfigError, ReferenceMismatch, reference_parity

SIZES = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 64}


@pytest.fixture(scope="module")
def model() -> LlamaForCausalLM:
    torch.manual_seed(1)
    return LlamaForCausalLM(LlamaConfig(**SIZES, attention_dropout=0.0)).eval()


@pytest.fixture
def other(model: LlamaForCausalLM) -> LlamaForCausalLM:
    return copy.deepcopy(model)


@pytest.fixture(scope="module")
def batch() -> dict[str, torch.Tensor]:
    tokens = torch.randint(1, 64, (4, 16), generator=torch.Generator().manual_seed(2))
    return {"tokens": tokens}


@pytest.fixture(scope="module")
def padded(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The last two rows begin with padding."""
    mask = torch.ones_like(batch["tokens"])
    mask[2:, :5] = 0
    return {"tokens": batch["tokens"] * mask, "attention_mask": mask, "position_ids": (mask.cumsum(1) - 1).clamp(min=0)}


def test_equal_models_differ_by_exactly_nothing(model: Any, other: Any, batch: Any, padded: Any) -> None:
    for some in (batch, padded):
        found = reference_parity(other, model, some).require()
        assert (found.passed, found.mean_difference, found.largest_difference, found.cause) == (True, 0.0, 0.0, "")


def test_another_dtype(model: Any, other: Any, batch: Any) -> None:
    found = reference_parity(other.bfloat16(), model, batch)
    assert found.cause == "parameter precision"
    assert "actor holds torch.bfloat16, the reference torch.float32" in found.detail
    assert found.mean_difference != 0.0
    with pytest.raises(ReferenceMismatch, match="parameter precision"):
        found.require()


def test_one_parameter_of_another_dtype_is_named(model: Any, other: Any, batch: Any) -> None:
    mixed = copy.deepcopy(other)
    mixed.lm_head.bfloat16()
    mixed.lm_head.register_forward_pre_hook(lambda _, inputs: (inputs[0].bfloat16(),))
    found = reference_parity(mixed, model, batch)
    assert found.cause == "parameter precision"
    assert "lm_head.weight" in found.detail


def test_dropout_in_training_mode(model: Any, other: Any, batch: Any) -> None:
    class Dropping(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = other
            self.dropout = torch.nn.Dropout(0.5)

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return self.dropout(self.inner(tokens).logits)

    found = reference_parity(Dropping().train(), model, batch)
    assert (found.passed, found.cause) == (False, "train mode")
    assert "the actor is in training mode with dropout at dropout" in found.detail.lower()


def test_different_and_missing_tensors(model: Any, other: Any, batch: Any) -> None:
    with torch.no_grad():
        other.model.layers[1].mlp.up_proj.weight[0, 0] += 0.5
    found = reference_parity(other, model, batch)
    assert found.cause == "weights differ"
    assert "model.layers.1.mlp.up_proj.weight, by up to 0.5" in found.detail
    other.extra = torch.nn.Parameter(torch.zeros(1))
    assert "Only one of the two has extra" in reference_parity(other, model, batch).detail


def test_padding_is_not_compared_and_its_handling_is(model: Any, padded: Any) -> None:
    def logprob(some: dict[str, torch.Tensor], **inputs: torch.Tensor) -> torch.Tensor:
        scores = model(some["tokens"], **inputs).logits[:, :-1].log_softmax(-1)
        return scores.gather(-1, some["tokens"][:, 1:, None]).squeeze(-1)

    def careful(some: dict[str, torch.Tensor]) -> torch.Tensor:
        return logprob(some, attention_mask=some["attention_mask"], position_ids=some["position_ids"])

    def careless(some: dict[str, torch.Tensor]) -> torch.Tensor:
        return logprob(some)

    assert reference_parity(careful, careful, padded).passed
    found = reference_parity(careless, careful, padded)
    assert (found.passed, found.cause) == (False, "padding")


def test_what_cannot_be_compared(model: Any, batch: Any) -> None:
    ids = batch["tokens"]
    mistakes = [
        ("map 'tokens'", model, {"input_ids": ids}),
        ("map 'tokens'", model, {"tokens": ids[0]}),
        ("leaves nothing to compare", model, {"tokens": ids, "attention_mask": torch.zeros_like(ids)}),
        ("leaves nothing to compare", model, {"tokens": ids[:, :1]}),
        ("found list", [model], batch),
        (r"gave tuple, expected \(4, 15\)", lambda some: (some["tokens"][:, 1:].float(), None), batch),
        (r"gave shape \(4, 16\), expected \(4, 15\)", lambda some: some["tokens"].float(), batch),
        (r"gave shape \(16, 4, 64\), expected", _Sideways(), batch),
    ]
    for said, side, some in mistakes:
        with pytest.raises(ConfigError, match=said):
            reference_parity(side, side, some)


def test_what_is_not_finite_is_called_so(batch: Any) -> None:
    broken = batch["tokens"][:, 1:] * float("nan")
    found = reference_parity(lambda _: broken, lambda _: broken, batch)
    assert (found.passed, found.cause) == (False, "not finite")


class _Sideways(torch.nn.Module):
    """Logits [T, R, V], as they lie inside Megatron."""

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return torch.zeros(*tokens.T.shape, 64)
