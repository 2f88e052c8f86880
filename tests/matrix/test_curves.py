"""The curves of one release, handed to `matrix run`, which compares those of all releases."""

from __future__ import annotations

import json
import math
from collections.abc import Callable

import pytest

from mcore_compat.matrix.process import CURVE
from tests.launch import run_ranks

SUPERVISED_STEPS, WARM_UP_STEPS, PPO_STEPS = 60, 120, 10


@pytest.mark.sampled
def test_training_gives_finite_curves_that_fall(release: str, record_property: Callable[[str, object], None]) -> None:
    lengths = SUPERVISED_STEPS, WARM_UP_STEPS, PPO_STEPS
    [curves] = run_ranks("tests.matrix.programs.curves:curves", *lengths, release=release, timeout=280)
    for run, series in curves.items():
        record_property(CURVE + run, json.dumps(series))
        assert all(math.isfinite(value) for values in series.values() for value in values)
    assert {len(values) for values in curves["ppo"].values()} == {PPO_STEPS}
    loss = curves["supervised"]["loss"]
    assert len(loss) == SUPERVISED_STEPS
    assert loss[-1] < 0.5 * loss[0]
