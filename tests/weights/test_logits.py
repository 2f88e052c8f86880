"""A loaded model computes what transformers computes, and its export is the folder it came from."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import torch

from tests.launch import run_ranks
from tests.shared_data import SHARED, shared_path
from tests.weights.folders import KINDS, expected_logits, some_tokens, stored

Results = Callable[[str], tuple[dict[str, str], Path]]

# The first release that can express what a kind needs.
FLOORS = {"qwen2": ("0.5.0", "add_qkv_bias"), "qwen3": ("0.6.0", "qk_layernorm")}


PRETRAINED = "stories260k"


def number(release: str) -> tuple[int, ...]:
    return tuple(map(int, release.split(".")))


def expressible(kind: str, release: str) -> bool:
    return kind not in FLOORS or number(release) >= number(FLOORS[kind][0])


@pytest.fixture(scope="module")
def sources(folders: dict[str, Path]) -> dict[str, Path]:
    """The made folders, and a pretrained one where it is there."""
    pretrained = SHARED / "data" / PRETRAINED
    return {**folders, PRETRAINED: pretrained} if pretrained.exists() else folders


@pytest.fixture(scope="module")
def results(sources: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Run all kinds on a release, once: (errors by kind, folder of results)."""

    @cache
    def run(release: str) -> tuple[dict[str, str], Path]:
        out = tmp_path_factory.mktemp(f"exports-{release}")
        named = {kind: str(folder) for kind, folder in sources.items()}
        return run_ranks("tests.weights.programs:logits_and_exports", named, str(out), release=release)[0], out

    return run


@pytest.fixture(scope="module")
def reference(sources: dict[str, Path]) -> Callable[[str], torch.Tensor]:
    """The logits of transformers, by kind."""
    return cache(lambda kind: expected_logits(sources[kind], some_tokens(vocab_size(kind))))


def vocab_size(kind: str) -> int:
    return 512 if kind == PRETRAINED else int(KINDS[kind]["vocab_size"])


@pytest.mark.parametrize("kind", [*KINDS, PRETRAINED])
def test_logits_equal_transformers(
    reference: Callable[[str], torch.Tensor], results: Results, release: str, kind: str
) -> None:
    if kind == PRETRAINED:
        shared_path(f"data/{PRETRAINED}")
    errors, out = results(release)
    if not expressible(kind, release):
        first, field = FLOORS[kind]
        assert errors[kind].startswith("FeatureUnavailable: ")
        assert field in errors[kind]
        assert f"it first works in Megatron-Core {first}" in errors[kind]
        return
    assert errors[kind] == ""
    found, expected = torch.load(out / kind / "logits.pt"), reference(kind)
    assert expected.abs().max() > 1
    torch.testing.assert_close(found[..., : vocab_size(kind)], expected, atol=1e-4, rtol=0)
    assert not found[..., vocab_size(kind) :].any()


@pytest.mark.parametrize("kind", KINDS)
def test_export_then_load_is_the_identity(folders: dict[str, Path], results: Results, release: str, kind: str) -> None:
    errors, out = results(release)
    if not expressible(kind, release):
        assert not (out / kind).exists()
        return
    assert errors[kind] == ""
    source, export = stored(folders[kind]), stored(out / kind)
    assert export.keys() == source.keys()
    assert all(torch.equal(export[name], source[name]) for name in source)
    configs = [json.loads((folder / "config.json").read_text()) for folder in (folders[kind], out / kind)]
    assert configs[0] == configs[1]


@pytest.mark.releases("0.19.2")
def test_a_pretrained_model_is_exported_with_its_tokenizer(
    reference: Callable[[str], torch.Tensor], results: Results, release: str
) -> None:
    folder = shared_path(f"data/{PRETRAINED}")
    export = results(release)[1] / PRETRAINED
    assert {path.name for path in folder.iterdir()} == {path.name for path in export.iterdir()} - {"logits.pt"}
    assert torch.equal(expected_logits(export, some_tokens(512)), reference(PRETRAINED))
