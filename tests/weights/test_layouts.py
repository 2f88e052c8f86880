"""Loading and streaming give the same tensors in every layout, on every rank and in the same order."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.launch import run_ranks
from tests.weights.folders import stored
from tests.weights.programs import PADDED_TO, digest

Ranks = list[dict[str, dict[str, Any]]]
TwoRanks = Callable[[str, str], Ranks]

# Untied with padding, and tied: there the last stage holds a copy of the embedding.
ALL_KINDS = ("llama3", "qwen2", "qwen3")
KINDS_OF = {"0.4.0": ("llama3",), "0.5.0": ("llama3", "qwen2")}
LAYOUTS = {"tp": {"tp": 2}, "pp": {"pp": 2}}


def stream(folders: dict[str, Path], sizes: dict[str, int], release: str, nproc: int = 2) -> Ranks:
    chosen = {kind: str(folders[kind]) for kind in KINDS_OF.get(release, ALL_KINDS)}
    return run_ranks("tests.weights.programs:streams", chosen, sizes, release=release, nproc=nproc)


@pytest.fixture(scope="module")
def two_ranks(folders: dict[str, Path]) -> TwoRanks:
    """Stream all kinds from two ranks in a layout, once per release."""
    return cache(lambda release, layout: stream(folders, LAYOUTS[layout], release))


def check(ranks: Ranks, folders: dict[str, Path]) -> None:
    for kind in ranks[0]:
        first = ranks[0][kind]["digests"]
        assert all(rank[kind]["digests"] == first for rank in ranks), "ranks differ"
        expected = {name: [list(tensor.shape), digest(tensor)] for name, tensor in stored(folders[kind]).items()}
        assert {name: [shape, sha] for name, shape, sha in first} == expected
        assert len(first) == len(expected)
        assert all(not (rank[kind]["unexpected"] or rank[kind]["left over"]) for rank in ranks)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_two_ranks_stream_the_folder_bit_for_bit(
    folders: dict[str, Path], two_ranks: TwoRanks, release: str, layout: str
) -> None:
    check(two_ranks(release, layout), folders)


def test_an_embedding_is_padded_with_zeros_and_streamed_without(two_ranks: TwoRanks, release: str) -> None:
    first, last = (rank["llama3"] for rank in two_ranks(release, "tp"))
    shapes = {name: shape for name, shape, _ in first["digests"]}
    assert shapes["model.embed_tokens.weight"] == shapes["lm_head.weight"] == [90, 32]
    added = PADDED_TO - 90
    assert last["padding"] == {"embedding.word_embeddings.weight": added, "output_layer.weight": added}


@pytest.mark.releases("0.4.0", "0.19.2")
def test_both_kinds_of_parallelism(folders: dict[str, Path], release: str) -> None:
    check(stream(folders, {"tp": 2, "pp": 2}, release, nproc=4), folders)


@pytest.mark.releases("0.8.0", "0.12.3", "0.19.2")
def test_layers_of_interleaved_stages_find_their_places(folders: dict[str, Path], release: str) -> None:
    check(stream(folders, {"pp": 2, "vpp": 2}, release), folders)
