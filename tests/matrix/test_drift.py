"""Signatures that differ between two trees, and the seam that each concerns."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from mcore_compat.cli._app import app
from mcore_compat.matrix.drift import Change, Signatures, drift

LAYERS = """
class Linear:
    def __init__(self, {parameters}): ...
    def _hidden(self{more}): ...
"""
SETTINGS = """
from dataclasses import dataclass
@dataclass
class Settings:
    size: int
    eps: float = {eps}
"""
OLD = {
    "__init__.py": "",
    "optimizer/__init__.py": "from .make import get_megatron_optimizer\n",
    "optimizer/make.py": "def get_megatron_optimizer(config, chunks, scale=1.0): ...\n",
    "layers.py": LAYERS.format(parameters="a, b, *, c=None", more="") + "\ndef gone(x): ...\n",
    "settings.py": SETTINGS.format(eps="1e-5"),
}
NEW = OLD | {
    "optimizer/make.py": "def get_megatron_optimizer(config, chunks, scale=1.0, groups=None): ...\n",
    "layers.py": LAYERS.format(parameters="b, a, *, c", more=", changed"),
    "settings.py": SETTINGS.format(eps="1e-6"),
}
PLACES = {"optimizer": {"megatron.core.optimizer:get_megatron_optimizer"}, "config": {"megatron.core.no:Such"}}


def signatures(folder: Path, files: dict[str, str]) -> Signatures:
    for name, text in files.items():
        path = folder / "megatron" / "core" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Signatures(folder)


def test_every_kind_of_change_is_named(tmp_path: Path) -> None:
    found = drift(signatures(tmp_path / "old", OLD), signatures(tmp_path / "new", NEW), PLACES)
    core = "megatron.core"
    assert found == [
        Change(f"{core}.optimizer.make.get_megatron_optimizer", ("+groups",), ("optimizer",)),
        Change(f"{core}.layers.Linear", ("c: None -> required", "order"), ()),
        Change(f"{core}.layers.gone", ("removed",), ()),
        Change(f"{core}.settings.Settings", ("eps: 1e-05 -> 1e-06",), ()),
    ]


def test_equal_trees_have_no_drift(tmp_path: Path) -> None:
    assert drift(signatures(tmp_path / "old", OLD), signatures(tmp_path / "new", OLD), PLACES) == []


def test_two_releases(pytestconfig: pytest.Config) -> None:
    if not pytestconfig.getoption("--all-releases"):
        pytest.skip("reads two whole releases: asks for --all-releases")
    result = CliRunner().invoke(app, ["matrix", "drift", "0.14.0", "0.15.3", "--json"])
    changes = {change["place"]: change for change in json.loads(result.stdout)["changes"]}
    found = changes["megatron.core.distributed.distributed_data_parallel.DistributedDataParallel"]
    assert "+pg_collection" in found["changes"]
    assert "data_parallel" in found["seams"]
