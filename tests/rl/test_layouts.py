"""The same series of metrics on every release and in every layout: PPO on the demo's sums, a few small steps."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from mcore_compat.rl import sums
from mcore_compat.rl.demo import DemoOptions, run_demo
from mcore_compat.rl.interrupt import StopRequest
from mcore_compat.rl.progress import Silent
from tests.launch import launch, run_ranks
from tests.rl.torch_backend import TorchBackend

STEPS = 3
SMALL = (
    f"trainer.total_training_steps={STEPS}",
    "trainer.val_before_train=false",
    "trainer.test_freq=-1",
    "trainer.logger=[console]",
    "data.train_batch_size=16",
    "data.val_max_samples=16",
    "actor_rollout_ref.actor.ppo_mini_batch_size=8",
    "actor_rollout_ref.rollout.n=2",
    # Batches of one size, however many ranks share them: responses are then the same to the last bit.
    "actor_rollout_ref.rollout.micro_batch_size=16",
)
MEGATRON = "actor_rollout_ref.actor.megatron"
LAYOUTS = {
    "tensor": [f"{MEGATRON}.tensor_model_parallel_size=2"],
    "pipeline": [
        f"{MEGATRON}.pipeline_model_parallel_size=2",
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4",
    ],
    "data": [],
}
REFERENCE = "0.19.2"
# These two sum in another order, and bring no optimizer of their own.
OLDEST = ("0.4.0", "0.5.0")

Series = list[Mapping[str, float]]
Start = tuple[Path, Path]


@pytest.fixture(scope="session")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run folder of a short demo on plain torch: a model that knows how to answer, prompts, and settings."""
    folder = tmp_path_factory.mktemp("layouts") / "demo"
    run_demo(
        DemoOptions(steps=1, output=str(folder), warm_up_steps=60),
        lambda _: TorchBackend(len(sums.CHARACTERS)),
        world_size=1,
        talk=Silent(),
        stop=StopRequest(),
    )
    return folder


@pytest.fixture(scope="session")
def alone(start: Path) -> Callable[[str], Series]:
    """A release's series in one process."""

    @cache
    def run(release: str) -> Series:
        folder = start.parent / f"alone-{release}"
        command = ("train", start / "config.yaml", "--json", *SMALL, f"trainer.default_local_dir={folder}")
        [outcome] = launch("mcore_compat", *command, release=release, timeout=240)
        assert outcome.returncode == 0, str(outcome)
        return learned(json.loads(outcome.stdout.splitlines()[-1]), release)

    return run


@pytest.fixture(scope="session")
def on_two_ranks(start: Path) -> Callable[[str], dict[str, Any]]:
    """A release's series in each layout of two processes."""

    @cache
    def run(release: str) -> dict[str, Any]:
        layouts = {
            name: [*SMALL, *layout, f"trainer.default_local_dir={start.parent / f'{name}-{release}'}"]
            for name, layout in LAYOUTS.items()
        }
        arguments = (str(start / "config.yaml"), layouts)
        ranks = run_ranks("tests.rl.layouts:train_each", *arguments, release=release, nproc=2, timeout=280)
        assert set(ranks[1].values()) == {None}
        return {name: learned(report, release) for name, report in ranks[0].items()}

    return run


def learned(report: Mapping[str, Any], release: str) -> Series:
    """What a run found out, without how long it took."""
    assert report["megatron"] == release
    return [
        {name: value for name, value in step.items() if not name.startswith(("timing_s", "perf"))}
        for step in report["steps"]
    ]


def differences(found: Series, expected: Series) -> dict[str, float]:
    """Largest difference of each metric over the steps: absolute below 1, relative above."""
    assert len(found) == len(expected) == STEPS
    assert [step.keys() for step in found] == [step.keys() for step in expected]
    return {
        name: max(abs(a[name] - b[name]) / max(1.0, abs(b[name])) for a, b in zip(found, expected, strict=True))
        for name in found[0]
    }


def worst(found: Series, expected: Series) -> tuple[float, str]:
    return max((value, name) for name, value in differences(found, expected).items())


def test_policies_are_equal_before_the_first_update_and_differ_after(
    alone: Callable[[str], Series], release: str
) -> None:
    steps = alone(release)
    assert steps[0]["critic/kl"] == 0.0
    assert steps[-1]["critic/kl"] > 0
    assert all(step["actor/param_change"] > 0 for step in steps)


def test_all_releases_find_the_same_series(alone: Callable[[str], Series], release: str) -> None:
    difference, metric = worst(alone(release), alone(REFERENCE))
    assert difference <= (1e-4 if release in OLDEST else 1e-6), metric


@pytest.mark.releases("0.4.0", "0.6.0", "0.19.2")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_two_processes_find_what_one_finds(
    alone: Callable[[str], Series],
    on_two_ranks: Callable[[str], dict[str, Any]],
    release: str,
    layout: str,
) -> None:
    difference, metric = worst(on_two_ranks(release)[layout], alone(release))
    assert difference <= 1e-4, metric
