from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from mcore_compat.errors import DataError
from mcore_compat.rl import sums
from mcore_compat.rl.config import Config
from mcore_compat.rl.config_load import config_from
from mcore_compat.rl.data import Prompts, batches, load_prompts, load_tokenizer, steps_per_epoch

TEMPLATE = "{% for m in messages %}{{ m['content'] }}{% endfor %}{% if add_generation_prompt %}={% endif %}"


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sums")
    sums.write_model(folder, 0)
    return folder


def settings(model: Path, file: Path | str, *overrides: str) -> Config:
    values = {
        "data": {"train_files": str(file), "train_batch_size": 1, "max_prompt_length": 4},
        "actor_rollout_ref": {"model": {"path": str(model)}, "actor": {"ppo_mini_batch_size": 1}},
    }
    return config_from(values, overrides)


def load(model: Path, file: Path, *overrides: str) -> Prompts:
    config = settings(model, file, *overrides)
    return load_prompts(config, load_tokenizer(config))


def jsonl(folder: Path, rows: Iterable[Mapping[str, Any] | str]) -> Path:
    file = folder / "prompts.jsonl"
    file.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return file


def refusal(model: Path, file: Path, *overrides: str) -> str:
    with pytest.raises(DataError) as caught:
        load(model, file, *overrides)
    return str(caught.value)


ROW = {
    "data_source": "sums",
    "prompt": "3+4=",
    "reward_model": {"ground_truth": "7", "style": "rule"},
    "extra_info": {"index": 5},
}


def test_verl_columns_from_jsonl_and_parquet_give_the_same_prompts(model: Path, tmp_path: Path) -> None:
    import pyarrow
    from pyarrow import parquet

    table = tmp_path / "prompts.parquet"
    parquet.write_table(pyarrow.Table.from_pylist([ROW]), table)
    first, second = load(model, jsonl(tmp_path, [ROW])), load(model, table)
    assert first == second
    (prompt,) = first.train
    assert prompt.tokens == tuple(sums.encode("3+4="))
    assert (prompt.data_source, prompt.ground_truth, prompt.extra_info) == ("sums", "7", {"index": 5})
    assert (first.pad_id, first.eos_id) == (0, 1)


def test_question_and_answer_rows_are_gsm8k(model: Path, tmp_path: Path) -> None:
    row = {"question": "1+1=", "answer": "one and one\n#### 1,002"}
    (prompt,) = load(model, jsonl(tmp_path, [row])).train
    assert (prompt.data_source, prompt.ground_truth) == ("openai/gsm8k", "1002")


def test_blank_lines_are_skipped_and_lines_still_count(model: Path, tmp_path: Path) -> None:
    assert "line 3: not valid JSON" in refusal(model, jsonl(tmp_path, [ROW, "", '{"prompt": ']))


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("[1]", ["line 1", "list", "one JSON object"]),
        ({"text": "1+1="}, ["line 1", "'prompt'", "text"]),
        ({"prompt": 3}, ["line 1", "'prompt'", "3"]),
        ({"prompt": ""}, ["line 1", "empty prompt"]),
        ({"prompt": []}, ["line 1", "role and content"]),
        ({"prompt": [{"role": "user"}]}, ["line 1", "role and content"]),
        ({"prompt": "1+1=", "reward_model": {"style": "rule"}}, ["line 1", "ground_truth"]),
        ({"prompt": "1+1=", "extra_info": "x"}, ["line 1", "extra_info"]),
        ({"question": "1+1=", "answer": "2"}, ["line 1", "####"]),
    ],
)
def test_a_malformed_row_is_named(model: Path, tmp_path: Path, row: Mapping[str, Any] | str, words: list[str]) -> None:
    text = refusal(model, jsonl(tmp_path, [row]))
    assert all(word in text for word in words), text


def test_a_missing_empty_or_unreadable_file_is_named(model: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("\n")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1")
    (tmp_path / "binary.jsonl").write_bytes(b"\xff\xfe\n")
    assert "absent.jsonl" in refusal(model, tmp_path / "absent.jsonl")
    assert "empty.jsonl is empty" in refusal(model, tmp_path / "empty.jsonl")
    assert "broken.parquet" in refusal(model, tmp_path / "broken.parquet")
    assert "line 1" in refusal(model, tmp_path / "binary.jsonl")


def test_long_prompts_are_counted_or_refused(model: Path, tmp_path: Path) -> None:
    file = jsonl(tmp_path, [ROW, ROW | {"prompt": "11+11="}])
    assert (len(load(model, file).train), load(model, file).dropped) == (1, 1)
    text = refusal(model, file, "data.filter_overlong_prompts=false")
    assert "line 2" in text
    assert "6 tokens" in text


def test_fewer_prompts_than_a_batch_are_refused(model: Path, tmp_path: Path) -> None:
    overrides = ["data.train_batch_size=2", "actor_rollout_ref.actor.ppo_mini_batch_size=2"]
    assert "holds 1 usable prompts" in refusal(model, jsonl(tmp_path, [ROW]), *overrides)


def test_sample_limits_and_the_validation_default(model: Path, tmp_path: Path) -> None:
    file = jsonl(tmp_path, [ROW | {"prompt": f"{n}+1="} for n in range(5)])
    prompts = load(model, file, "data.train_max_samples=3")
    assert len(prompts.train) == 3
    assert prompts.validation == prompts.train
    assert len(load(model, file, f"data.val_files={file}", "data.val_max_samples=2").validation) == 2


def test_chat_messages_without_a_template_are_the_one_user_message(model: Path, tmp_path: Path) -> None:
    (prompt,) = load(model, jsonl(tmp_path, [{"prompt": [{"role": "user", "content": "3+4="}]}])).train
    assert prompt.tokens == tuple(sums.encode("3+4="))
    two = [{"role": "system", "content": "1"}, {"role": "user", "content": "3+4="}]
    assert "found system, user" in refusal(model, jsonl(tmp_path, [{"prompt": two}]))


def test_chat_messages_go_through_the_template(model: Path, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    tokenizer.chat_template = TEMPLATE
    two = [{"role": "system", "content": "3"}, {"role": "user", "content": "+4"}]
    prompts = load_prompts(settings(model, jsonl(tmp_path, [{"prompt": two}])), tokenizer)
    assert prompts.train[0].text == "3+4="
    tokenizer.chat_template = "{{ raise_exception('no system message') }}"
    with pytest.raises(DataError, match=r"line 1.*no system message"):
        load_prompts(settings(model, jsonl(tmp_path, [{"prompt": two}])), tokenizer)


def test_a_tokenizer_without_pad_token_says_which_key_is_missing(model: Path, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes((model / "tokenizer.json").read_bytes())
    kept = json.loads((model / "tokenizer_config.json").read_text())
    del kept["pad_token"]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(kept))
    with pytest.raises(DataError, match=r"no pad_token(.|\n)*tokenizer_config\.json"):
        load_tokenizer(settings(tmp_path, "x.jsonl"))


def test_an_absent_or_broken_tokenizer_folder_is_named(model: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="absent"):
        load_tokenizer(settings(tmp_path / "absent", "x.jsonl"))
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(DataError, match=str(tmp_path)):
        load_tokenizer(settings(tmp_path, "x.jsonl"))


def test_batches_are_a_function_of_seed_and_epoch(model: Path, tmp_path: Path) -> None:
    rows = [ROW | {"prompt": f"{n}+1="} for n in range(7)]
    overrides = ["data.train_batch_size=2", "actor_rollout_ref.actor.ppo_mini_batch_size=2"]
    file = jsonl(tmp_path, rows)

    def texts(*more: str) -> list[list[str]]:
        config = settings(model, file, *overrides, *more)
        prompts = load_prompts(config, load_tokenizer(config))
        assert steps_per_epoch(config, prompts) == 3
        return [[prompt.text for prompt in batch] for batch in islice(batches(config, prompts), 6)]

    drawn = texts()
    assert drawn == texts()
    assert drawn != texts("data.seed=2")
    assert drawn[:3] != drawn[3:]
    assert len({text for batch in drawn[:3] for text in batch}) == 6
    in_order = texts("data.shuffle=false")
    assert in_order[:3] == in_order[3:] == [["0+1=", "1+1="], ["2+1=", "3+1="], ["4+1=", "5+1="]]
