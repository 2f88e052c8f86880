"""PPO on the real engine: one run without a break, and one in two parts."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import mcore_compat
from mcore_compat.bridge import MegatronBackend
from mcore_compat.contracts import DataParallelSettings, ParallelLayout
from mcore_compat.rl import sums
from mcore_compat.rl.config_load import config_from
from mcore_compat.rl.interrupt import StopRequest
from mcore_compat.rl.progress import Silent
from mcore_compat.rl.trainer import train
from tests.rl.test_trainer import StopAfter, learned, values


def interrupted_and_not(folder: str) -> dict[str, Any]:
    """Three steps; and two of them, a stop, and the third with everything built anew."""
    warnings.simplefilter("ignore")
    root = Path(folder)
    sums.write_model(root / "model", 0)
    sums.write_prompts(root / "sums.jsonl")
    whole = _steps(root, "whole")
    stop = StopRequest()
    _steps(root, "run", stop=stop)
    return {"whole": whole, "resumed": _steps(root, "run")}


def _steps(root: Path, name: str, stop: StopRequest | None = None) -> list[dict[str, float]]:
    trainer = {"total_training_steps": 3, "logger": ["console"], "save_freq": 5}
    config = config_from({**values(root), "trainer": trainer})
    mcore_compat.prepare("cpu")
    mcore_compat.reset()
    backend = MegatronBackend(
        ParallelLayout(), device="cpu", data_parallel=DataParallelSettings(use_distributed_optimizer=True)
    )
    talk = StopAfter(1, stop) if stop else Silent()
    return learned(train(config, backend, root / name, talk=talk, stop=stop or StopRequest()))
