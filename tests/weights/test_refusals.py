"""A folder that does not fit is refused before anything is written, on all ranks alike and by name."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from mcore_compat.errors import ConfigError
from mcore_compat.weights import read_architecture
from mcore_compat.weights.names import check_tensor_parallel
from tests.launch import run_ranks
from tests.weights.folders import stored

Weights = dict[str, torch.Tensor]
Q_PROJ = "model.layers.3.self_attn.q_proj.weight"
EMBEDDING = "model.embed_tokens.weight"
ROWS = 104
# Nothing here depends on the release.
RELEASE = None


def without(name: str) -> Callable[[Weights], Weights]:
    return lambda weights: {key: value for key, value in weights.items() if key != name}


def rows(name: str, count: int) -> Callable[[Weights], Weights]:
    return lambda weights: {**weights, name: torch.ones(count, 32)}


DAMAGE: dict[str, tuple[Callable[[Weights], Weights], list[str]]] = {
    "absent tensor": (without(Q_PROJ), [f"has no tensor {Q_PROJ}"]),
    "absent head": (without("lm_head.weight"), ["has no tensor lm_head.weight"]),
    "wrong shape": (rows(Q_PROJ, 31), [Q_PROJ, "(31, 32)", "(32, 32)"]),
    "wrong vocabulary": (rows(EMBEDDING, 50), [EMBEDDING, "(50, 32)", "(90, 32)", f"({ROWS}, 32)"]),
}


def with_padding(weights: Weights) -> Weights:
    padding = torch.ones(ROWS - 90, 32)
    return {n: torch.cat([value, padding]) if value.shape[0] == 90 else value for n, value in weights.items()}


def copy(source: Path, folder: Path, change: Callable[[Weights], Weights]) -> str:
    folder.mkdir()
    shutil.copy(source / "config.json", folder)
    save_file(change(stored(source)), folder / "model.safetensors", metadata={"format": "pt"})
    return str(folder)


@pytest.fixture(scope="module")
def damaged(folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Copies of the good folder, each with one thing wrong."""
    root = tmp_path_factory.mktemp("damaged")
    return {name: copy(folders["llama3"], root / name, change) for name, (change, _) in DAMAGE.items()}


@pytest.fixture(scope="module")
def refused(folders: dict[str, Path], damaged: dict[str, str]) -> tuple[dict[str, str], bool]:
    """What one process says to each damaged folder and to other models; whether it changed nothing."""
    others = {kind: str(folders[kind]) for kind in ("llama2", "qwen2", "qwen3")}
    arguments = (str(folders["llama3"]), {**damaged, **others}, [ROWS], {})
    messages, unchanged = run_ranks("tests.weights.programs:refusals", *arguments, release=RELEASE)[0][0]
    return messages, unchanged


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_folder(refused: tuple[dict[str, str], bool], name: str) -> None:
    message = refused[0][name]
    assert message.startswith("WeightsError: ")
    assert all(part in message for part in DAMAGE[name][1]), message


@pytest.mark.parametrize(
    ("kind", "part"),
    [
        ("llama2", "self_attention.linear_qkv.weight has shape (64, 32) in the model"),
        ("qwen2", "linear_qkv.bias, which model.layers.0.self_attn.q_proj.bias"),
        ("qwen3", "q_layernorm.weight, which model.layers.0.self_attn.q_norm.weight"),
    ],
)
def test_a_folder_of_another_model(refused: tuple[dict[str, str], bool], kind: str, part: str) -> None:
    assert part in refused[0][kind]


def test_no_refusal_writes_anything(refused: tuple[dict[str, str], bool]) -> None:
    assert refused[1]


def test_vocabulary_rows(folders: dict[str, Path], tmp_path: Path) -> None:
    """Stored padding is accepted; too few rows in the model are refused with both numbers."""
    padded = copy(folders["llama3"], tmp_path / "padded", with_padding)
    arguments = (str(folders["llama3"]), {"it": padded}, [ROWS, 64], {})
    enough, too_few = run_ranks("tests.weights.programs:refusals", *arguments, release=RELEASE)[0]
    assert enough == [{"it": ""}, False]
    assert "has 64 rows, the folder's vocabulary 90" in too_few[0]["it"]


def test_every_stage_refuses_a_tensor_of_another_stage(folders: dict[str, Path], damaged: dict[str, str]) -> None:
    only = {name: damaged[name] for name in ("absent tensor", "wrong shape")}
    arguments = (str(folders["llama3"]), only, [ROWS], {"pp": 2})
    ranks = run_ranks("tests.weights.programs:refusals", *arguments, release=RELEASE, nproc=2)
    assert ranks[0] == ranks[1]
    assert all(message.startswith("WeightsError: ") for message in ranks[0][0][0].values())


@pytest.mark.parametrize(("tp", "what"), [(3, "4 attention heads"), (4, "2 key-value heads"), (8, "4 attention heads")])
def test_tensor_parallelism_that_cuts_a_head(folders: dict[str, Path], tp: int, what: str) -> None:
    with pytest.raises(ConfigError, match=f"tensor-parallel size {tp} does not divide {what}"):
        check_tensor_parallel(read_architecture(folders["llama3"]), tp)
