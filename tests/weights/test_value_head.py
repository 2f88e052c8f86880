"""A critic takes its body from a language model, keeps its own head, and saves and loads both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.launch import run_ranks
from tests.weights.folders import some_tokens, stored

Ranks = list[dict[str, Any]]


def run(source: Path, out: Path, sizes: dict[str, int], release: str) -> Ranks:
    arguments = (str(source), str(out), sizes)
    nproc = 2 if sizes else 1
    return run_ranks("tests.weights.programs:value_folder", *arguments, release=release, nproc=nproc)


def check(ranks: Ranks, source: Path, out: Path) -> None:
    """The head was new the first time and came back the second; the body is the source's, on all ranks."""
    assert ranks[-1]["new"] == [["output_layer.weight"], []]
    assert all(rank["unexpected"] == [[], []] and rank["equal"] for rank in ranks)
    assert all(rank["names"] == ranks[0]["names"] for rank in ranks)
    body, critic = stored(source, dropped=["lm_head.weight"]), stored(out)
    assert critic.keys() == {*body, "score.weight"}
    assert critic["score.weight"].shape == (1, 32)
    assert critic["score.weight"].any()
    assert all(torch.equal(critic[name], body[name]) for name in body)


def test_transformers_computes_the_same_values(folders: dict[str, Path], tmp_path: Path, release: str) -> None:
    from transformers import AutoModelForTokenClassification

    source, out = folders["llama3"], tmp_path / "critic"
    ranks = run(source, out, {}, release)
    check(ranks, source, out)
    model = AutoModelForTokenClassification.from_pretrained(out, dtype=torch.float32, attn_implementation="eager")
    assert type(model).__name__ == "LlamaForTokenClassification"
    with torch.no_grad():
        expected = model.eval()(some_tokens(90)).logits
    assert expected.shape == (2, 48, 1)
    assert expected.std() > 0.01
    torch.testing.assert_close(torch.tensor(ranks[0]["values"]), expected[..., 0], atol=1e-4, rtol=0)


@pytest.mark.releases("0.4.0", "0.6.0", "0.19.2")
@pytest.mark.parametrize("layout", ["tp", "pp"])
def test_the_head_survives_every_layout(folders: dict[str, Path], tmp_path: Path, release: str, layout: str) -> None:
    source, out = folders["llama3"], tmp_path / "critic"
    check(run(source, out, {layout: 2}, release), source, out)


@pytest.mark.releases("0.6.0", "0.19.2")
def test_a_tied_language_model_gives_a_critic_without_surprises(
    folders: dict[str, Path], tmp_path: Path, release: str
) -> None:
    source, out = folders["qwen2"], tmp_path / "critic"
    ranks = run(source, out, {"pp": 2}, release)
    check(ranks, source, out)
    assert ranks[0]["new"] == [[], []]
