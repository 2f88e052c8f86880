from __future__ import annotations

from pathlib import Path

import pytest

from mcore_compat.errors import DataError
from mcore_compat.rl.config import RewardFunctionConfig
from mcore_compat.rl.data import Prompt
from mcore_compat.rl.rewards import Scorer

PROMPTS = [
    Prompt((1,), "a", "sums", "7", {"index": 0}),
    Prompt((2,), "b", "openai/gsm8k", "1002", {"index": 1}),
]


def scorer(folder: Path, body: str, name: str | None = None) -> Scorer:
    file = folder / "reward.py"
    file.write_text(body)
    return Scorer(RewardFunctionConfig(str(file), name))


def refusal(folder: Path, body: str) -> str:
    with pytest.raises(DataError) as caught:
        scorer(folder, body)(PROMPTS, ["x", "y"])
    return str(caught.value)


def test_without_a_function_the_data_source_decides() -> None:
    score = Scorer(RewardFunctionConfig())
    assert score(PROMPTS, [" 7\n", "so it is\n#### 1,002"]) == [1.0, 1.0]
    assert score(PROMPTS, ["70", "1002"]) == [0.0, 0.0]


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        ("#### 1002", 1.0),
        ("#### $1,002.0", 1.0),
        ("#### 1 #### 1002", 1.0),
        ("#### 1002 #### 1", 0.0),
        ("####", 0.0),
    ],
)
def test_gsm8k_reads_the_number_after_the_last_mark(response: str, expected: float) -> None:
    assert Scorer(RewardFunctionConfig(name="gsm8k"))(PROMPTS[1:], [response]) == [expected]


def test_a_row_without_ground_truth_needs_a_function() -> None:
    with pytest.raises(DataError, match=r"sample 0(.|\n)*|no reward_model.ground_truth"):
        Scorer(RewardFunctionConfig())([Prompt((1,), "a")], ["7"])


def test_a_function_of_the_user_gets_verls_arguments(tmp_path: Path) -> None:
    body = """
def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    return {"score": len(solution_str) + extra_info["index"], "note": data_source + ground_truth}
def other(data_source, solution_str, ground_truth, extra_info=None):
    return -1
"""
    assert scorer(tmp_path, body)(PROMPTS, ["abc", "de"]) == [3.0, 3.0]
    assert scorer(tmp_path, body, "other")(PROMPTS, ["abc", "de"]) == [-1.0, -1.0]
    by_path = Scorer(RewardFunctionConfig(f"{tmp_path / 'reward.py'}:other"))
    assert by_path(PROMPTS, ["abc", "de"]) == [-1.0, -1.0]
    assert by_path.name == "reward.py:other"


def test_a_batch_function_is_called_once_with_lists(tmp_path: Path) -> None:
    body = """
def compute_score(data_sources, solution_strs, ground_truths, extra_infos):
    assert data_sources == ["sums", "openai/gsm8k"] and ground_truths == ["7", "1002"]
    return [len(s) for s in solution_strs]
"""
    assert scorer(tmp_path, body)(PROMPTS, ["abc", "de"]) == [3.0, 2.0]


SIGNATURE = "def compute_score(data_source, solution_str, ground_truth, extra_info=None):\n    "
BATCH = "def compute_score(data_sources, solution_strs, ground_truths, extra_infos):\n    "


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (
            SIGNATURE + "return 1 / (solution_str != 'y')",
            ["compute_score", "ZeroDivisionError", "sample 1", "'y'"],
        ),
        (SIGNATURE + "return float('nan') if solution_str == 'y' else 0", ["sample 1", "nan", "finite"]),
        (SIGNATURE + "return 'good'", ["sample 0", "'good'", "number"]),
        (SIGNATURE + "return None", ["sample 0", "None"]),
        (SIGNATURE + "return {'reward': 1}", ["sample 0", "'score'"]),
        ("def compute_score(a, b):\n    return 1", ["TypeError", "sample 0"]),
        (BATCH + "return [1.0]", ["1 scores for 2 samples"]),
        (BATCH + "return [1.0, 2.0, 3.0]", ["3 scores for 2 samples"]),
        (BATCH + "return 1.0", ["list of numbers"]),
        (BATCH + "return [1.0, float('inf')]", ["sample 1", "inf"]),
        (BATCH + "raise ValueError('no')", ["ValueError: no", "batch of 2"]),
    ],
)
def test_a_bad_reward_is_one_error_with_function_sample_and_value(tmp_path: Path, body: str, words: list[str]) -> None:
    text = refusal(tmp_path, body)
    assert "reward.py:compute_score" in text
    assert all(word in text for word in words), text


def test_a_file_that_is_absent_or_broken_or_lacks_the_function_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"absent\.py"):
        Scorer(RewardFunctionConfig(str(tmp_path / "absent.py")))
    with pytest.raises(DataError, match="SyntaxError"):
        scorer(tmp_path, "def compute_score(:")
    with pytest.raises(DataError, match="'compute_score'"):
        scorer(tmp_path, "def something_else(): pass")
    with pytest.raises(DataError, match="exact_match, gsm8k"):
        Scorer(RewardFunctionConfig(name="exact"))
