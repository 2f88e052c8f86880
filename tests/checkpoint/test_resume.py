"""A resumed run goes on as if it had not been interrupted (C13), on any release and layout."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.checkpoint.checkpoints import Saved, saved
from tests.launch import run_ranks

OLDEST, NEWEST = "0.4.0", "0.19.2"
# What a first process does: three updates in a row, and two of them before a save; then a second one does the third.
WHOLE, HALF, REST = {"updates": 3}, {"updates": 2}, {"updates": 1}
Task = dict[str, Any]
LAYOUTS: dict[int, dict[str, Task]] = {
    1: {"one": {"sizes": {}}},
    2: {"dp": {"sizes": {}}, "bf16": {"sizes": {}, "precision": "bf16"}, "tp": {"sizes": {"tp": 2}, "sharded": False}},
}
# (release, number of ranks) -> folder with LAYOUT/whole and LAYOUT/half
Runs = Callable[[str, int], Path]


def carry_out(release: str, nproc: int, tasks: list[Task]) -> list[list[dict[str, Any]]]:
    """Run the tasks; per task what each rank reports."""
    found = run_ranks("tests.checkpoint.programs:carry_out", tasks, release=release, nproc=nproc, timeout=280)
    return [list(ranks) for ranks in zip(*found, strict=True)]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Uninterrupted and half runs of every layout, once per release."""

    @cache
    def run(release: str, nproc: int) -> Path:
        root = tmp_path_factory.mktemp(f"checkpoints-{release}-{nproc}")
        tasks = [
            {**layout, **length, "target": str(root / name / kind)}
            for name, layout in LAYOUTS[nproc].items()
            for kind, length in (("whole", WHOLE), ("half", HALF))
        ]
        carry_out(release, nproc, tasks)
        return root

    return run


@pytest.fixture(scope="module")
def resumed(runs: Runs, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """The third update in a new process, in the layout that saved: LAYOUT/resumed beside the two others."""

    @cache
    def run(release: str, nproc: int) -> Path:
        root = runs(release, nproc)
        tasks = [
            {**layout, **REST, "source": str(root / name / "half"), "target": str(root / name / "resumed")}
            for name, layout in LAYOUTS[nproc].items()
        ]
        for ranks in carry_out(release, nproc, tasks):
            for found in ranks:
                assert found["same layout"]
                assert found["state"] == {"note": "1e-3", "number": 0.1, "list": [1, None]}
                assert found["warnings"] == []
        return root

    return run


def goes_on(uninterrupted: Saved, resumed: Saved, tolerance: float = 0.0) -> None:
    assert resumed.differing(uninterrupted, tolerance) == []
    assert resumed.models == uninterrupted.models
    for role in ("actor", "critic"):
        assert uninterrupted.models[role]["optimizer"]["step"] == 3
        assert uninterrupted.models[role]["optimizer"]["lr"] == 0.08


@pytest.mark.releases(OLDEST, NEWEST)  # in one process all releases: tests/contract
@pytest.mark.parametrize(("nproc", "layout"), [(1, "one"), (2, "dp"), (2, "bf16"), (2, "tp")])
def test_same_release_and_layout_go_on_bit_for_bit(resumed: Runs, release: str, nproc: int, layout: str) -> None:
    root = resumed(release, nproc) / layout
    goes_on(saved(root / "whole"), saved(root / "resumed"))


def test_moments_and_main_parameters_are_saved_whole(runs: Runs) -> None:
    half = saved(runs(NEWEST, 2) / "bf16" / "half")
    name = "decoder.layers.1.mlp.linear_fc1.weight"
    parts = {part: half.tensors[f"actor/optimizer/{name}.{part}"] for part in ("main", "exp_avg", "exp_avg_sq")}
    assert {tuple(tensor.shape) for tensor in parts.values()} == {(128, 32)}
    assert {str(tensor.dtype) for tensor in parts.values()} == {"torch.float32"}
    assert all(tensor.abs().max() > 0 for tensor in parts.values())
    weight = half.tensors[f"actor/weights/{name}"]
    assert weight.equal(parts["main"].bfloat16())


@pytest.mark.releases(NEWEST)
def test_from_the_oldest_release_with_tp_to_the_newest_with_pp(runs: Runs, release: str, tmp_path: Path) -> None:
    source = runs(OLDEST, 2) / "tp" / "half"
    task = {"sizes": {"pp": 2}, "source": str(source), "target": str(tmp_path), **REST}
    (found,) = carry_out(release, 2, [task])
    assert [rank["same layout"] for rank in found] == [False, False]
    goes_on(saved(runs(release, 1) / "one" / "whole"), saved(tmp_path), tolerance=1e-6)


@pytest.mark.releases(NEWEST)
def test_chunks_of_the_interleaved_schedule_go_on_as_whole_stages(release: str, tmp_path: Path) -> None:
    chunks = {"sizes": {"pp": 2, "vpp": 2}, "layers": 4}
    stages = {**chunks, "sizes": {"pp": 2}, "source": str(tmp_path / "half")}
    tasks = [
        {**chunks, **WHOLE, "target": str(tmp_path / "whole")},
        {**chunks, **HALF, "target": str(tmp_path / "half")},
        {**stages, **REST, "target": str(tmp_path / "resumed")},
    ]
    carry_out(release, 2, tasks)
    goes_on(saved(tmp_path / "whole"), saved(tmp_path / "resumed"), tolerance=1e-6)


@pytest.mark.releases(NEWEST)
def test_one_process(runs: Runs, release: str, tmp_path: Path) -> None:
    """Several things in one start: another layout, another precision, missing parts."""
    root = runs(release, 2)
    source = saved(root / "bf16" / "half").folder
    without = tmp_path / "without"
    shutil.copytree(root / "dp" / "half", without)
    shutil.rmtree(saved(without).folder / "critic" / "optimizer")
    damaged = tmp_path / "damaged"
    shutil.copytree(root / "dp" / "half", damaged)
    (file,) = (saved(damaged).folder / "critic" / "weights").iterdir()
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    tasks = {
        "damaged": {"sizes": {}, "source": str(damaged)},
        "again": {"sizes": {}, "precision": "bf16", "source": str(source), "target": str(tmp_path / "again")},
        "wider": {"sizes": {}, "source": str(source), "target": str(tmp_path / "wider")},
        "refused": {"sizes": {}, "source": str(without)},
        "waived": {"sizes": {}, "source": str(without), "fresh": ["critic"], "target": str(tmp_path / "waived")},
    }
    found = {name: ranks[0] for name, ranks in zip(tasks, carry_out(release, 1, list(tasks.values())), strict=True)}
    bf16 = saved(root / "bf16" / "half")

    # From two data-parallel ranks to one: the same tensors, bit for bit.
    assert saved(tmp_path / "again").differing(bf16) == []
    assert saved(tmp_path / "again").models == bf16.models

    # From bf16 to fp32: the fp32 main parameters become the weights.
    wider = saved(tmp_path / "wider").tensors
    name = "decoder.layers.0.mlp.linear_fc2.weight"
    assert wider[f"critic/weights/{name}"].equal(bf16.tensors[f"critic/optimizer/{name}.main"])

    assert "critic: the optimizer state is missing" in found["refused"]["error"]
    assert str(file) in found["damaged"]["error"]
    assert found["refused"]["changed"] == found["damaged"]["changed"] == [0, 0]

    # One process exchanges nothing, so nothing at all is unpickled.
    assert [found[name]["unpickled"] for name in ("again", "wider", "waived")] == [0, 0, 0]

    (warning,) = found["waived"]["warnings"]
    assert "critic" in warning
    assert "zero moments" in warning
    half, waived = saved(root / "dp" / "half"), saved(tmp_path / "waived")
    differing = waived.differing(half)
    assert differing
    assert {name.rpartition(".")[0].partition("/decoder")[0].partition("/")[0] for name in differing} == {"critic"}
    assert all(waived.tensors[name].count_nonzero() == 0 for name in differing)
    assert waived.models["critic"]["optimizer"]["step"] == 0
    assert waived.models["actor"] == half.models["actor"]
