from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mcore_compat.errors import ConfigError, FeatureUnavailable
from mcore_compat.runtime.norm import Norm


def config(**given: Any) -> Any:
    return SimpleNamespace(**{"normalization": "LayerNorm", "sequence_parallel": False, **given})


@pytest.mark.parametrize(("kind", "plain"), [("LayerNorm", torch.nn.LayerNorm), ("RMSNorm", torch.nn.RMSNorm)])
def test_equals_torch(kind: str, plain: type[torch.nn.Module]) -> None:
    values = torch.randn(3, 8)
    norm = Norm(config=config(normalization=kind), hidden_size=8, eps=1e-3, persist_layer_norm=True)
    assert torch.equal(norm(values), plain(8, eps=1e-3)(values))


def test_marks_parameters_for_sequence_parallelism() -> None:
    marked = Norm(config(sequence_parallel=True), 8)
    plain = Norm(config(), torch.Size([8]))
    assert [p.sequence_parallel for p in marked.parameters()] == [True, True]
    assert [p.sequence_parallel for p in plain.parameters()] == [False, False]


def test_refuses_zero_centred_weights() -> None:
    with pytest.raises(FeatureUnavailable, match="layernorm_zero_centered_gamma"):
        Norm(config(layernorm_zero_centered_gamma=True), 8)
    with pytest.raises(FeatureUnavailable, match="zero-centred"):
        Norm(config(), 8, zero_centered_gamma=True)


def test_refuses_unknown_and_contradictory_kinds() -> None:
    with pytest.raises(ConfigError, match="'L2Norm'; expected one of LayerNorm, RMSNorm"):
        Norm(config(normalization="L2Norm"), 8)
    with pytest.raises(ConfigError, match="contradicts"):
        Norm(config(), 8, normalization="RMSNorm")
