"""Differences planted into a copy of a real release are found by the real steps, and named."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from mcore_compat.cli._app import app
from mcore_compat.matrix.diff import Divergence, Trace, first_divergence
from mcore_compat.matrix.overlay import overlay
from mcore_compat.rl import sums
from tests.launch import ROOT, run_ranks

RELEASE = "0.12.3"
# Name of the fork to (file, text, what stands there instead).
PLANTS = {
    "epsilon": ("transformer/transformer_layer.py", "eps=self.config.layernorm_epsilon", "eps=1e-3"),
    "scale": ("pipeline_parallel/schedules.py", "output_tensor /= num_microbatches", "output_tensor *= 2"),
    "frozen": (
        "models/common/embeddings/language_model_embedding.py",
        "        # Position embedding (serial).\n",
        "        self.word_embeddings.weight.requires_grad = False\n",
    ),
    "decay": ("optimizer/__init__.py", "wd_mult, _lr_mult = 0.0, 1.0", "wd_mult, _lr_mult = 1.0, 1.0"),
}
CONFIG = """
data: {{train_files: [unread.jsonl], max_prompt_length: 4, max_response_length: 3}}
actor_rollout_ref:
  model: {{path: {folder}}}
  actor: {{optim: {{lr: 0.001, weight_decay: 0.1}}}}
trainer: {{device: cpu}}
"""


def plant(folder: Path, name: str) -> Path:
    """A fork of the release with one change."""
    file, text, instead = PLANTS[name]
    shutil.copytree(overlay(RELEASE), folder / name)
    path = folder / name / "megatron" / "core" / file
    source = path.read_text()
    assert text in source
    path.write_text(source.replace(text, instead))
    return folder / name


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Settings of a run, with a model."""
    folder = tmp_path_factory.mktemp("config")
    sums.write_model(folder / "model", 1)
    path = folder / "train.yaml"
    path.write_text(CONFIG.format(folder=folder / "model"))
    return path


def trace(tree: Path, folder: Path, config: Path) -> Trace:
    """One step on a tree."""
    path = os.pathsep.join([str(tree), str(ROOT)])
    run_ranks("tests.matrix.programs.steps:trace", str(folder), str(config), release=None, env={"PYTHONPATH": path})
    return Trace.read(folder)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory, config: Path) -> Trace:
    """One step on the release itself."""
    return trace(overlay(RELEASE), tmp_path_factory.mktemp("release") / "trace", config)


@pytest.fixture
def found(request: pytest.FixtureRequest, tmp_path: Path, base: Trace, config: Path) -> Divergence:
    """The first difference between the release and the fork that the test names."""
    forked = trace(plant(tmp_path, request.param), tmp_path / "trace", config)
    divergence = first_divergence(base, forked)
    assert divergence is not None
    return divergence


def forked(name: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("found", [name], indirect=True)


def test_norm_epsilon_by_command(tmp_path: Path, config: Path) -> None:
    fork = plant(tmp_path, "epsilon")
    arguments = ["matrix", "diff", RELEASE, "--root", str(fork), "--config", str(config), "--steps", "1", "--json"]
    result = CliRunner().invoke(app, arguments)
    report = json.loads(result.stdout)
    divergence = report["divergence"]
    assert (result.exit_code, report["identical"], report["old"]) == (1, False, RELEASE)
    assert (divergence["stage"], divergence["place"]) == ("logits", "decoder.layers.0.input_layernorm")
    assert divergence["causes"] == ["decoder.layers.0.input_layernorm: eps 1e-06 -> 0.001"]


@forked("scale")
def test_loss_scale(found: Divergence) -> None:
    assert found.stage == "gradients"
    assert found.tensors[0] == found.tensors[1]
    assert any("every gradient is 4 times as large: another loss scale" in cause for cause in found.causes)


@forked("frozen")
def test_frozen_parameter(found: Divergence) -> None:
    assert (found.stage, found.tensor) == ("gradients", "embedding.word_embeddings.weight")
    assert any("requires_grad True -> False" in cause for cause in found.causes)


@forked("decay")
def test_weight_decay_rule(found: Divergence) -> None:
    assert (found.stage, found.tensor) == (
        "updated parameters",
        "decoder.layers.0.input_layernorm.weight",
    )
    assert any("weight_decay 0.0 -> 0.1" in cause for cause in found.causes)
    assert any("another weight decay" in cause for cause in found.causes)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["0.12.3"], 2, "give a second release, or --root PATH"),
        (["0.12.3", "9.9"], 2, "no release '9.9'"),
        (["0.12.3", "--root", "nowhere"], 4, "found no megatron/core under"),
    ],
)
def test_bad_usage(arguments: list[str], code: int, said: str) -> None:
    result = CliRunner().invoke(app, ["matrix", "diff", *arguments])
    assert result.exit_code == code
    assert said in result.stderr


def test_ends_of_the_table_on_the_demo(pytestconfig: pytest.Config) -> None:
    if not pytestconfig.getoption("--all-releases"):
        pytest.skip("draws and trains the demo's model on two more releases: asks for --all-releases")
    result = CliRunner().invoke(app, ["matrix", "diff", "0.6.0", "0.19.2"])
    assert (result.exit_code, "bit for bit" in result.stdout) in [(0, True), (1, False)]
