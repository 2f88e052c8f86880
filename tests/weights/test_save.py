"""A written folder is complete or not there, and readable by everybody who can read the folder around it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from mcore_compat.errors import WeightsError
from mcore_compat.weights.save import exported_config, write_folder
from tests.weights.folders import stored


def halved(folder: Path) -> Iterator[tuple[str, torch.Tensor]]:
    return ((name, tensor.bfloat16()) for name, tensor in stored(folder).items())


def breaking(folder: Path) -> Iterator[tuple[str, torch.Tensor]]:
    yield next(halved(folder))
    raise RuntimeError("a rank is gone")


def test_a_folder_in_another_precision(folders: dict[str, Path], tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    write_folder(halved(folders["llama3"]), tmp_path / "deep" / "out", folders["llama3"])
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "deep" / "out")
    expected = dict(halved(folders["llama3"]))
    assert model.dtype == torch.bfloat16
    assert all(torch.equal(tensor, expected[name]) for name, tensor in model.state_dict().items())


def test_an_older_folder_is_replaced_and_nothing_else_is_left(folders: dict[str, Path], tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "stale").touch()
    (out / "config.json").touch()
    write_folder(halved(folders["llama3"]), out, folders["llama3"])
    assert {path.name for path in out.iterdir()} == {"config.json", "generation_config.json", "model.safetensors"}
    assert list(tmp_path.iterdir()) == [out]
    plain = tmp_path / "plain"
    plain.touch()
    assert {path.stat().st_mode for path in out.iterdir()} == {plain.stat().st_mode}


def test_what_is_no_model_is_not_replaced(folders: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    (tmp_path / "notes").touch()
    for name in ("run", "notes"):
        with pytest.raises(WeightsError, match="would delete what it holds"):
            write_folder(halved(folders["llama3"]), tmp_path / name, folders["llama3"])
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["checkpoints", "notes", "run"]


def test_a_failure_leaves_the_older_folder(folders: dict[str, Path], tmp_path: Path) -> None:
    out = tmp_path / "out"
    write_folder(halved(folders["llama3"]), out, folders["llama3"])
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    with pytest.raises(RuntimeError, match="a rank is gone"):
        write_folder(breaking(folders["llama3"]), out, folders["llama3"])
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    assert list(tmp_path.iterdir()) == [out]


def test_a_folder_may_replace_its_own_source(folders: dict[str, Path], tmp_path: Path) -> None:
    out = tmp_path / "out"
    write_folder(halved(folders["qwen2"]), out, folders["qwen2"])
    write_folder(halved(folders["qwen2"]), out, out)
    assert json.loads((out / "config.json").read_text())["model_type"] == "qwen2"
    assert stored(out).keys() == stored(folders["qwen2"]).keys()


@pytest.mark.parametrize("key", ["dtype", "torch_dtype"])
def test_the_dtype_keeps_the_spelling_of_the_source(key: str) -> None:
    config = exported_config({"model_type": "llama", key: "float32"}, {"a": torch.zeros(1, dtype=torch.bfloat16)})
    assert config == {"model_type": "llama", key: "bfloat16"}
