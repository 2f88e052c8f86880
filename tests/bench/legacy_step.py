"""The same step on the release's own calls, with the redirects of an era in place and without."""

from __future__ import annotations

import statistics
import warnings

import mcore_compat
from mcore_compat import legacy
from tests.bench import train_step

Step = train_step.Step


def race(rounds: int, pairs: int, limit: float) -> list[float]:
    """Return each round's median ratio; the first within ``limit`` is the last (see ``train_step.race``)."""
    warnings.simplefilter("ignore")
    mcore_compat.prepare("cpu")
    mcore_compat.init_parallel()
    mcore_compat.seed(1)
    ratios: list[float] = []
    while len(ratios) < rounds and not any(ratio <= limit for ratio in ratios):
        bare = train_step._by_upstream()
        legacy.install("0.4")
        served = train_step._by_upstream()
        served()
        legacy.uninstall()
        bare()
        ratios.append(statistics.median(_ratio(served, bare) for _ in range(pairs)))
    return ratios


def _ratio(served: Step, bare: Step) -> float:
    without = train_step._seconds(bare)
    legacy.install("0.4")
    try:
        return train_step._seconds(served) / without
    finally:
        legacy.uninstall()
