"""A small run that works, and what is needed to break it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from mcore_compat.rl import sums

RELEASE = "0.19.2"
MODEL = "actor_rollout_ref.model.path"
CONFIG = """
data:
  train_batch_size: 4
  max_prompt_length: 4
  max_response_length: 3
  val_max_samples: 4
  shuffle: false
actor_rollout_ref:
  actor: {ppo_mini_batch_size: 4, optim: {lr: 1e-3}}
trainer: {total_training_steps: 100000, val_before_train: false, logger: [console], device: cpu}
"""


class Bench:
    """A good run's model, prompts and settings, and damaged copies of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = folder / "run.yaml"
        sums.write_model(folder / "model", 0)
        sums.write_prompts(folder / "sums.jsonl")
        self.config.write_text(CONFIG)
        self.good = [f"data.train_files={folder / 'sums.jsonl'}", f"{MODEL}={folder / 'model'}"]

    def model(self, name: str, damage: Callable[[Path], object]) -> str:
        """A copy of the model that was damaged."""
        copy = self.folder / name
        shutil.copytree(self.folder / "model", copy)
        damage(copy)
        return f"{MODEL}={copy}"

    def file(self, key: str, name: str, text: str) -> str:
        """A setting that points to a file with this text."""
        (self.folder / name).write_text(text)
        return f"{key}={self.folder / name}"


def errors(text: str) -> list[str]:
    """The errors that a command reported."""
    return [line for line in text.splitlines() if line.startswith("error: ")]
