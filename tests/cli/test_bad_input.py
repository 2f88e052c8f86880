"""Bad input on the real Megatron, two ranks: one clear error on rank 0 that names the item, and nobody hangs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.workbench import MODEL, RELEASE, Bench, errors
from tests.launch import run_ranks

REWARD = "def compute_score(data_source, solution_str, ground_truth, extra_info=None):\n    "
REWARDS = "def compute_score(data_sources, solution_strs, ground_truths, extra_infos):\n    "


def change_json(name: str, **values: object) -> Callable[[Path], object]:
    """Set keys of a file; ``None`` takes one out."""

    def change(folder: Path) -> None:
        content = json.loads((folder / name).read_text()) | values
        kept = {key: value for key, value in content.items() if value is not None or key not in values}
        (folder / name).write_text(json.dumps(kept))

    return change


def shorten_a_weight(folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    weights = load_file(folder / "model.safetensors")
    weights["model.norm.weight"] = weights["model.norm.weight"][:63].clone()
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def make_cases(bench: Bench) -> dict[str, list[str]]:
    prompts = (bench.folder / "sums.jsonl").read_text().splitlines(keepends=True)
    malformed = "".join([*prompts[:2], prompts[2][:9] + "\n", *prompts[3:]])
    scored_by = "custom_reward_function.path"
    cases = {
        "missing folder": f"{MODEL}={bench.folder / 'absent'}",
        "broken config": bench.model("broken", lambda folder: (folder / "config.json").write_text('{"model_type": ')),
        "wrong shape": bench.model("short", shorten_a_weight),
        "unknown architecture": bench.model("unknown", change_json("config.json", model_type="gpt2")),
        "no pad token": bench.model("padless", change_json("tokenizer_config.json", pad_token=None)),
        "empty prompts": bench.file("data.train_files", "empty.jsonl", ""),
        "malformed prompts": bench.file("data.train_files", "malformed.jsonl", malformed),
        "reward raises": bench.file(scored_by, "raises.py", REWARD + "raise ValueError('no gold')\n"),
        "reward is NaN": bench.file(scored_by, "nan.py", REWARD + "return float('nan')\n"),
        "rewards too few": bench.file(scored_by, "few.py", REWARDS + "return [1.0]\n"),
        "heads": bench.model("odd", change_json("config.json", num_attention_heads=1, num_key_value_heads=1)),
        "small batch": "data.train_batch_size=1",
    }
    more = {
        "heads": ["actor_rollout_ref.actor.megatron.tensor_model_parallel_size=2"],
        "small batch": ["actor_rollout_ref.actor.ppo_mini_batch_size=1"],
    }
    return {
        name: [*bench.good, case, *more.get(name, []), f"trainer.default_local_dir={bench.folder / 'runs' / name}"]
        for name, case in cases.items()
    }


# Case -> exit status and what the error names.
REFUSED: dict[str, tuple[int, list[str]]] = {
    "missing folder": (3, ["absent", MODEL]),
    "broken config": (3, ["broken", "config.json"]),
    "wrong shape": (3, ["model.norm.weight", "(63,)", "(64,)"]),
    "unknown architecture": (3, ["gpt2", "llama", "qwen2", "qwen3"]),
    "no pad token": (3, ["padless", "pad_token"]),
    "empty prompts": (3, ["empty.jsonl is empty"]),
    "malformed prompts": (3, ["malformed.jsonl, line 3"]),
    "reward raises": (3, ["raises.py:compute_score", "ValueError: no gold", "sample 0"]),
    "reward is NaN": (3, ["nan.py:compute_score", "nan", "sample 0"]),
    "rewards too few": (3, ["few.py:compute_score", "1 scores for 4 samples"]),
    "heads": (2, ["num_attention_heads (1)", "tensor_model_parallel_size (2)"]),
    "small batch": (2, ["data.train_batch_size=1", "2 data-parallel ranks"]),
}


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(tmp_path_factory.mktemp("bad-input"))


@pytest.fixture(scope="module")
def refused(bench: Bench) -> list[dict[str, dict[str, Any]]]:
    """What each rank said to each case; all cases in one start of two ranks."""
    arguments = (str(bench.config), make_cases(bench))
    return run_ranks("tests.cli.refusals:refuse", *arguments, release=RELEASE, nproc=2, timeout=240)


@pytest.mark.parametrize("name", REFUSED)
def test_one_error_on_rank_zero_names_the_item(
    bench: Bench, refused: list[dict[str, dict[str, Any]]], name: str
) -> None:
    status, words = REFUSED[name]
    assert [rank[name]["status"] for rank in refused] == [status, status], refused[0][name]
    assert [rank[name]["stdout"] for rank in refused] == ["", ""]
    first, second = (rank[name]["stderr"] for rank in refused)
    assert len(errors(first)) == 1
    assert all(word in first for word in words), first
    assert errors(second) == []
    run = bench.folder / "runs" / name
    assert not run.exists() or {item.name for item in run.iterdir()} == {"config.yaml"}
