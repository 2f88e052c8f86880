"""The first difference between two traces is found, measured, placed, and its cause named."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from mcore_compat.matrix.diff import Divergence, Trace, describe, first_divergence

Stages = dict[str, dict[str, torch.Tensor]]


def stages() -> Stages:
    generator = torch.Generator().manual_seed(1)

    def drawn() -> torch.Tensor:
        return torch.randn(4, 3, generator=generator)

    weights = {"a.weight": drawn(), "b.weight": drawn()}
    return {
        "initial weights": weights,
        "module outputs": {"a.norm": drawn(), "a": drawn(), "b": drawn()},
        "logits": {"microbatch 0": drawn()},
        "loss": {"loss": torch.tensor([1.5])},
        "gradients": {"a.weight": drawn(), "b.weight": drawn()},
        "gradient norm": {"gradient norm": torch.tensor([2.0])},
        "updated parameters": {name: value + 0.01 * drawn() for name, value in weights.items()},
        "optimizer state": {"a.weight exp_avg": drawn(), "b.weight exp_avg": drawn()},
    }


def write(folder: Path, tensors: Mapping[str, Mapping[str, torch.Tensor]], facts: Mapping[str, Any]) -> Trace:
    folder.mkdir()
    (folder / "facts.json").write_text(json.dumps(facts))
    rows = []
    for number, (stage, found) in enumerate(tensors.items()):
        save_file(dict(found), folder / f"{number}.safetensors")
        rows.append({"step": min(number, 1), "stage": stage, "file": f"{number}.safetensors", "names": list(found)})
    (folder / "stages.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return Trace.read(folder)


class Pair:
    """Two traces of which one is changed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.new = stages()
        self.facts: dict[str, dict[str, Any]] = {}

    def compare(self, tolerance: float = 0.0) -> Divergence | None:
        old_facts = {name: dict.fromkeys(values, "old") for name, values in self.facts.items()}
        old = write(self.folder / "old", stages(), old_facts)
        return first_divergence(old, write(self.folder / "new", self.new, self.facts), tolerance)

    def divergence(self) -> Divergence:
        found = self.compare()
        assert found is not None
        return found


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return Pair(tmp_path)


def test_equal_traces_do_not_diverge(pair: Pair) -> None:
    assert pair.compare() is None


@pytest.mark.parametrize("stage", [name for name in stages() if name != "module outputs"])
def test_first_stage_and_size_are_reported(pair: Pair, stage: str) -> None:
    for later in list(pair.new)[list(pair.new).index(stage) :]:
        *_, last = pair.new[later]
        pair.new[later][last].view(-1)[0] += 0.5
    found = pair.divergence()
    assert (found.step, found.stage, found.tensor) == (int(stage != "initial weights"), stage, last_of(stage))
    assert (found.elements, found.tensors[0]) == (1, 1)
    assert found.largest == pytest.approx(0.5)
    assert f"{stage}, {found.tensor}" in next(iter(describe(found)))


def last_of(stage: str) -> str:
    return list(stages()[stage])[-1]


def test_inner_results_alone_are_no_difference(pair: Pair) -> None:
    pair.new["module outputs"]["a"] += 1
    assert pair.compare() is None


def test_differing_logits_are_placed_at_the_first_module_and_its_attributes(pair: Pair) -> None:
    pair.new["module outputs"]["a.norm"] += 1
    pair.new["module outputs"]["a"] += 1
    pair.new["logits"]["microbatch 0"] += 1
    pair.facts = {"a.norm": {"eps": 1e-3}}
    found = pair.divergence()
    assert (found.stage, found.place) == ("logits", "a.norm")
    assert found.causes == ("a.norm: eps 'old' -> 0.001",)


def test_common_factor_of_gradients_is_a_loss_scale(pair: Pair) -> None:
    for gradient in pair.new["gradients"].values():
        gradient *= 3
    (cause,) = pair.divergence().causes
    assert cause.startswith("every gradient is 3 times as large: another loss scale")


def test_missing_gradient_is_a_frozen_parameter(pair: Pair) -> None:
    del pair.new["gradients"]["b.weight"]
    pair.facts = {"b.weight": {"requires_grad": False}}
    found = pair.divergence()
    assert (found.tensor, found.shape) == ("b.weight", ())
    assert "new side has no gradients for 1 tensor(s), as a frozen parameter has" in found.causes[0]
    assert "requires_grad 'old' -> False" in found.causes[1]


def test_parameter_that_stays_is_frozen(pair: Pair) -> None:
    pair.new["updated parameters"]["a.weight"] = stages()["initial weights"]["a.weight"]
    assert "new side did not change 1 parameter(s), first a.weight" in pair.divergence().causes[0]


def test_share_of_the_weight_is_weight_decay(pair: Pair) -> None:
    pair.new["updated parameters"]["a.weight"] -= 0.001 * stages()["initial weights"]["a.weight"]
    (cause,) = pair.divergence().causes
    assert cause == "a.weight differs by -0.001 of itself: another weight decay"


@pytest.mark.parametrize(("tolerance", "same"), [(1e-3, True), (1e-9, False)])
def test_tolerance_is_relative_to_the_largest_element(pair: Pair, tolerance: float, same: bool) -> None:
    pair.new["logits"]["microbatch 0"] *= 1 + 1e-5
    assert (pair.compare(tolerance) is None) is same


def test_not_a_number_is_a_difference_at_any_tolerance(pair: Pair) -> None:
    pair.new["loss"]["loss"].fill_(torch.nan)
    found = pair.compare(tolerance=1.0)
    assert found is not None
    assert found.stage == "loss"
