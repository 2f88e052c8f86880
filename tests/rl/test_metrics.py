from __future__ import annotations

import math

import pytest
import torch

from mcore_compat.rl.metrics import TABLE, Stopwatch, as_markdown, data_metrics, names, throughput

VERL_NAMES = """
actor/pg_loss actor/ppo_kl actor/pg_clipfrac actor/entropy actor/kl_loss actor/kl_coef actor/grad_norm
actor/lr actor/param_change critic/vf_loss critic/vf_clipfrac critic/vpred_mean critic/grad_norm critic/lr
critic/kl critic/kl_coeff critic/score/mean critic/score/max critic/score/min critic/rewards/mean
critic/advantages/mean critic/returns/mean critic/values/mean
response_length/mean response_length/clip_ratio
prompt_length/mean timing_s/gen timing_s/step perf/throughput val/score/mean
"""


def batch() -> dict[str, torch.Tensor]:
    mask = torch.tensor([[1, 1, 0], [0, 1, 0]], dtype=torch.bool)
    inside = torch.where(mask, torch.tensor([[1.0, 2.0, 0.0], [0.0, 6.0, 0.0]]), 99.0)
    return {
        "response_mask": mask,
        "scores": torch.tensor([1.0, 3.0]),
        "rewards": torch.where(mask, inside, 0.0),
        "advantages": inside,
        "returns": inside + 1,
        "values": inside - 1,
        "old_logprobs": torch.where(mask, -1.0, 0.0),
        "ref_logprobs": torch.where(mask, -1.5, 500.0),
        "prompt_lengths": torch.tensor([1, 2]),
        "response_lengths": torch.tensor([2, 1]),
    }


def test_data_metrics_by_hand() -> None:
    metrics = data_metrics(batch(), max_prompt_length=2, max_response_length=4)
    expected = {
        "critic/score/mean": 2.0,
        "critic/score/max": 3.0,
        "critic/score/min": 1.0,
        "critic/rewards/mean": 4.5,
        "critic/rewards/max": 6.0,
        "critic/advantages/mean": 3.0,
        "critic/advantages/min": 1.0,
        "critic/returns/mean": 4.0,
        "critic/values/max": 5.0,
        "response_length/mean": 1.5,
        "response_length/clip_ratio": 0.0,
        "prompt_length/clip_ratio": 0.5,
        "critic/kl": math.exp(-0.5) - 0.5,
    }
    assert {name: metrics[name] for name in expected} == pytest.approx(expected)
    assert set(metrics) <= names()


def test_kl_is_exactly_zero_for_equal_models_and_absent_without_a_reference() -> None:
    same = batch()
    same["ref_logprobs"] = same["old_logprobs"]
    assert data_metrics(same, max_prompt_length=2, max_response_length=4)["critic/kl"] == 0.0
    del same["ref_logprobs"]
    assert "critic/kl" not in data_metrics(same, max_prompt_length=2, max_response_length=4)


def test_table_has_every_name_once() -> None:
    assert set(VERL_NAMES.split()) <= names()
    assert len({metric.name for metric in TABLE}) == len(TABLE)


def test_markdown_has_a_row_for_each_metric() -> None:
    rows = as_markdown().splitlines()[2:]
    assert [row.split("`")[1] for row in rows] == [metric.name for metric in TABLE]
    # More than three bars would break the table.
    assert {row.count("|") for row in rows} == {3}


def test_stopwatch_adds_up_and_times_what_raises() -> None:
    watch = Stopwatch()
    with watch("gen"):
        pass
    first = watch.seconds["gen"]
    with pytest.raises(RuntimeError), watch("gen"):
        raise RuntimeError
    assert watch.metrics()["timing_s/gen"] > first > 0


def test_throughput() -> None:
    assert throughput(batch(), {"timing_s/step": 0.5}, ranks=2) == {"perf/throughput": 6.0}
