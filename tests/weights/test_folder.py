"""Whatever is wrong with the files of a folder is one error that names the file."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from mcore_compat.errors import WeightsError
from mcore_compat.weights.folder import INDEX, SINGLE, WeightFolder


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    """A folder with two shards."""
    save_file({"a": torch.arange(12.0).reshape(3, 4)}, tmp_path / "one.safetensors")
    save_file({"b": torch.ones(2)}, tmp_path / "two.safetensors")
    weight_map = {"a": "one.safetensors", "b": "two.safetensors"}
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": weight_map}))
    return tmp_path


def test_reads_across_shards(sharded: Path) -> None:
    with WeightFolder(sharded) as source:
        assert source.names == ("a", "b")
        assert source.shape("a") == (3, 4)
        assert torch.equal(source.read("b"), torch.ones(2))


def test_reads_slices_of_either_dimension(sharded: Path) -> None:
    with WeightFolder(sharded) as source:
        whole = source.read("a")
        assert torch.equal(source.read("a", 0, 1, 3), whole[1:3])
        assert torch.equal(source.read("a", 1, 2, 4), whole[:, 2:4])
        assert source.read("a", 0, 3, 3).shape == (0, 4)


def test_no_weights(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=f"has neither {SINGLE} nor {INDEX}"):
        WeightFolder(tmp_path)


def test_an_absent_shard(sharded: Path) -> None:
    (sharded / "two.safetensors").unlink()
    with pytest.raises(WeightsError, match=r"names two\.safetensors, which is not there"):
        WeightFolder(sharded)


def test_a_truncated_shard(sharded: Path) -> None:
    shard = sharded / "two.safetensors"
    shard.write_bytes(shard.read_bytes()[:-3])
    with pytest.raises(WeightsError, match=r"two\.safetensors cannot be read"):
        WeightFolder(sharded)


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"weight_map": 3}'])
def test_a_broken_index(sharded: Path, text: str) -> None:
    (sharded / INDEX).write_text(text)
    with pytest.raises(WeightsError, match="is not an index of weights"):
        WeightFolder(sharded)


def test_an_absent_tensor(sharded: Path) -> None:
    shutil.copy(sharded / "two.safetensors", sharded / "one.safetensors")
    with WeightFolder(sharded) as source, pytest.raises(WeightsError, match="has no tensor a"):
        source.shape("a")
