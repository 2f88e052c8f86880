"""The example in ``examples/`` on the real story teller, shortened."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from mcore_compat.rl.config import RewardFunctionConfig
from mcore_compat.rl.config_load import load_config
from mcore_compat.rl.data import Prompt
from mcore_compat.rl.interrupt import StopRequest
from mcore_compat.rl.progress import Silent
from mcore_compat.rl.rewards import Scorer
from mcore_compat.rl.trainer import train
from tests.launch import ROOT
from tests.rl.stories import EXAMPLES, write_story_prompts
from tests.rl.torch_backend import TorchBackend
from tests.shared_data import shared_path

SMALLER = (
    "data.train_batch_size=8",
    "data.val_max_samples=8",
    "data.max_response_length=24",
    "actor_rollout_ref.actor.ppo_mini_batch_size=8",
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=8",
    "trainer.total_training_steps=2",
    "trainer.logger=[]",
)


def test_the_example_trains_and_the_export_writes_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers import pipeline

    model = shared_path("data/stories260k")
    monkeypatch.chdir(ROOT)  # the example names its reward function from there
    prompts = write_story_prompts(tmp_path / "prompts.jsonl")
    paths = [f"data.train_files={prompts}", f"actor_rollout_ref.model.path={model}"]
    config = load_config(EXAMPLES / "stories.yaml", [*paths, *SMALLER])
    report = train(config, TorchBackend(512), tmp_path / "run", talk=Silent(), stop=StopRequest())
    assert report.steps[0]["critic/kl"] == 0.0
    assert 0 < report.steps[1]["critic/kl"] < math.inf
    writer = pipeline("text-generation", model=str(report.export), device="cpu")
    text = writer("Once upon a time, there was", max_new_tokens=20, do_sample=False)[0]["generated_text"]
    assert len(text.split()) > 10


def test_happy_words_are_counted_whole() -> None:
    score = Scorer(RewardFunctionConfig(str(EXAMPLES / "happy.py")))
    texts = ["She was happy and smiled.", "An unhappy funeral.", "They love to play. Fun!"]
    assert score([Prompt((1,), "p")] * 3, texts) == [2.0, 0.0, 3.0]
