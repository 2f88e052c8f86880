"""Three steps with decay and clipping, and steps in bf16, for each kind of optimizer and each way to split."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from mcore_compat import DataParallelSettings, McoreCompatError
from tests.contract.programs.t0 import DECAYING, DISTRIBUTED, OVERLAPPED, UNSHARDED, compare, enter

GATHERING = DataParallelSettings(
    use_distributed_optimizer=True, overlap_grad_reduce=True, overlap_param_gather=True, bucket_size=4000
)
KINDS = {
    "plain": UNSHARDED,
    "distributed": DISTRIBUTED,
    "reduction overlapped": OVERLAPPED,
    "distributed, reduction overlapped": replace(OVERLAPPED, use_distributed_optimizer=True),
    "distributed, all overlapped": GATHERING,
}
LAYOUTS: dict[str, dict[str, Any]] = {"dp": {}, "tp": {"tp": 2}, "pp": {"pp": 2}}


def one_process(steps: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Both kinds of optimizer alone, and bf16."""
    enter()
    found = {name: _three_steps(steps, KINDS[name]) for name in ("plain", "distributed")}
    return {**found, "bf16": _bf16(steps, UNSHARDED)}


def two_ranks(steps: dict[str, Any], folder: Path) -> dict[str, dict[str, Any]]:
    """Each kind under data parallelism; the plain one and bf16 in each layout."""
    found: dict[str, dict[str, Any]] = {}
    for name, sizes in LAYOUTS.items():
        enter(**sizes)
        kinds = KINDS if name == "dp" else {"plain": UNSHARDED}
        found[name] = {kind: _three_steps(steps, settings) for kind, settings in kinds.items()}
        found[name]["bf16"] = _bf16(steps, DISTRIBUTED if name == "dp" else UNSHARDED)
    return found


def _three_steps(steps: dict[str, Any], settings: DataParallelSettings) -> dict[str, Any]:
    """The comparison, or the error in its place."""
    try:
        return compare("three steps", 2, steps, data_parallel=settings)
    except McoreCompatError as error:
        return {"error": f"{type(error).__name__}: {error}"}


def _bf16(steps: dict[str, Any], settings: DataParallelSettings) -> dict[str, Any]:
    bf16 = {"precision": "bf16", "data_parallel": settings}
    return {
        "one step": compare("eight rows", 2, steps, **bf16),
        "three steps": compare("three steps", 2, steps, settings=DECAYING, **bf16),
    }
