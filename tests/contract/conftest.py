"""One start of the ranks per release and number of ranks, shared by all tests of the contract."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.launch import run_ranks

# All others compare themselves with what this release does in one process.
REFERENCE = "0.19.2"
# Half of what a test may take: the first one also waits for the reference.
TIMEOUT_SECONDS = 140
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
        "layouts.averaged_in_collective",
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
# (release, number of ranks, section) -> what the section returned, per rank; ``alone``: start ranks for that one only.
Found = Callable[..., list[Any]]


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all workers of this run see."""
    own = tmp_path_factory.getbasetemp()
    folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "contract"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def reference(shared: Path) -> Path:
    """Every scenario's step in one process."""
    path = shared / "reference.pt"
    target = "tests.contract.programs.run:write_reference"
    return once(path, lambda: run_ranks(target, str(path), release=REFERENCE, timeout=TIMEOUT_SECONDS))


@pytest.fixture(scope="session")
def llama(shared: Path) -> Path:
    """A language model of T0's sizes, with a tied embedding, in Hugging Face format."""
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = LlamaConfig(**sizes, vocab_size=64, tie_word_embeddings=True)
    return once(shared / "llama", lambda: LlamaForCausalLM(config).save_pretrained(shared / "llama"))


@pytest.fixture(scope="session")
def found(shared: Path, reference: Path, llama: Path) -> Found:
    """Results of the sections."""

    def section(release: str, nproc: int, name: str, *, alone: bool = False) -> list[Any]:
        names = (name,) if alone else SECTIONS[nproc]
        path = shared / f"{release}-{nproc}-{name if alone else 'all'}.json"
        once(path, lambda: path.write_text(json.dumps(_run(release, nproc, names, str(reference), str(llama)))))
        return _results(json.loads(path.read_text()), name)

    return section


def once(path: Path, make: Callable[[], object]) -> Path:
    """Make a file or folder, unless another worker has."""
    with path.with_name(f"{path.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            make()
    return path


def _run(release: str, nproc: int, names: tuple[str, ...], *arguments: str) -> dict[str, Any]:
    """What each rank returned, or why ranks failed: every test says so, and none tries again."""
    target = "tests.contract.programs.run:sections"
    try:
        return {"ranks": run_ranks(target, names, *arguments, release=release, nproc=nproc, timeout=TIMEOUT_SECONDS)}
    except AssertionError as error:
        return {"failure": str(error)}


def _results(outcome: dict[str, Any], name: str) -> list[Any]:
    assert "failure" not in outcome, outcome["failure"]
    sections = [rank[name] for rank in outcome["ranks"]]
    errors = [f"rank {rank}: {section['error']}" for rank, section in enumerate(sections) if "error" in section]
    assert not errors, "\n".join(errors)
    return [section["result"] for section in sections]
