"""One start of the ranks per release and number of ranks, shared by all tests of the contract."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.launch import run_ranks

# All others compare themselves with what this release does in one process.
REFERENCE = "0.19.2"
SECTIONS = {
    1: (
        "single.splits",
        "single.releases_agree",
        "single.hand_check",
        "single.first_steps",
        "single.step_results",
        "single.settings_of_later_releases",
        "single.refusals",
        "single.explanation",
        "critics.one_process",
    ),
    2: (
        "layouts.layouts",
        "layouts.data_parallel",
        "layouts.no_sync",
        "layouts.reduction_types",
        "layouts.tensor_parallel",
        "layouts.pipeline",
        "layouts.tied_refusal",
        "layouts.interleaved",
        "layouts.context_parallel",
        "layouts.experts",
        "critics.pipeline",
        "providers.one_step",
        "providers.flags",
    ),
    4: ("tied.step", "tied.copies", "tied.interleaved", "tied.experts"),
}
# (release, number of ranks, section) -> what the section returned, per rank; a fourth argument: run that one alone.
Found = Callable[..., list[Any]]


@pytest.fixture(scope="session")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every scenario's step in one process."""
    path = tmp_path_factory.mktemp("contract") / "reference.pt"
    run_ranks("tests.contract.programs.run:write_reference", str(path), release=REFERENCE, timeout=280)
    return path


@pytest.fixture(scope="session")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A language model of T0's sizes, with a tied embedding, in Hugging Face format."""
    from transformers import LlamaConfig, LlamaForCausalLM

    folder = tmp_path_factory.mktemp("contract") / "llama"
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    LlamaForCausalLM(LlamaConfig(**sizes, vocab_size=64, tie_word_embeddings=True)).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def found(reference: Path, llama: Path) -> Found:
    """Results of the sections; ranks are started once for all of them."""

    @cache
    def ranks(release: str, nproc: int, names: tuple[str, ...]) -> list[dict[str, Any]]:
        arguments = (names, str(reference), str(llama))
        target = "tests.contract.programs.run:sections"
        return run_ranks(target, *arguments, release=release, nproc=nproc, timeout=280)

    def section(release: str, nproc: int, name: str, *, alone: bool = False) -> list[Any]:
        outcomes = [rank[name] for rank in ranks(release, nproc, (name,) if alone else SECTIONS[nproc])]
        failures = [f"rank {rank}: {outcome['error']}" for rank, outcome in enumerate(outcomes) if "error" in outcome]
        assert not failures, "\n".join(failures)
        return [outcome["result"] for outcome in outcomes]

    return section
