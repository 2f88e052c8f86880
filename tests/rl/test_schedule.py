from __future__ import annotations

import pytest

from mcore_compat.rl.schedule import learning_rate
from mcore_compat.rl.settings import ScheduleSettings


def rates(settings: ScheduleSettings, steps: range) -> list[float]:
    return [learning_rate(step, settings) for step in steps]


def test_warm_up_starts_at_its_first_rate() -> None:
    settings = ScheduleSettings(lr=1e-2, lr_warmup_steps=10)
    assert rates(settings, range(3)) == pytest.approx([0.0, 1e-3, 2e-3])
    assert rates(settings, range(10, 13)) == [1e-2] * 3
    assert learning_rate(5, ScheduleSettings(1.0, lr_warmup_steps=10, lr_warmup_init=0.5)) == 0.75


def test_linear_decay_reaches_the_minimum_and_stays() -> None:
    settings = ScheduleSettings(1.0, lr_warmup_steps=2, lr_decay_style="linear", lr_decay_steps=6, min_lr=0.2)
    assert rates(settings, range(2, 8)) == pytest.approx([1.0, 0.8, 0.6, 0.4, 0.2, 0.2])


def test_cosine_decay_is_halfway_in_the_middle() -> None:
    settings = ScheduleSettings(1.0, lr_decay_style="cosine", lr_decay_steps=8)
    assert rates(settings, range(0, 12, 4)) == pytest.approx([1.0, 0.5, 0.0])
    assert learning_rate(1, settings) > 0.95


def test_without_warm_up_or_decay_it_is_constant() -> None:
    assert set(rates(ScheduleSettings(lr=3e-4), range(100))) == {3e-4}
