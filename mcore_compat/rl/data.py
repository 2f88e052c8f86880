"""Prompts from JSONL and parquet files, with verl's columns or GSM8K's."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from mcore_compat.errors import DataError
from mcore_compat.rl.config import Config, DataConfig

GSM8K_SOURCE = "openai/gsm8k"
GSM8K_MARK = "####"


@dataclass(frozen=True)
class Prompt:
    """One prompt and what its reward function needs.

    Attributes:
        tokens: Token ids.
        text: What the tokens stand for.
        data_source: verl's column of that name; ``openai/gsm8k`` for question and answer rows.
        ground_truth: ``reward_model.ground_truth``, or the number after ``####``; ``None``: the row has none.
        extra_info: verl's column of that name.
    """

    tokens: tuple[int, ...]
    text: str
    data_source: str = ""
    ground_truth: Any = None
    extra_info: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Prompts:
    """All prompts of a run, and the ids every rank needs.

    Attributes:
        train: In file order.
        validation: In file order; the training prompts where no file was given.
        dropped: How many were left out because they were too long.
        eos_id: Token that ends a response.
        pad_id: Token that fills rows up.
    """

    train: tuple[Prompt, ...]
    validation: tuple[Prompt, ...]
    dropped: int
    eos_id: int
    pad_id: int


def load_tokenizer(config: Config) -> Any:
    """Load the tokenizer from its local folder.

    Raises:
        DataError: No folder, nothing readable in it, or no end or pad token.
    """
    from transformers import AutoTokenizer

    model = config.actor_rollout_ref.model
    folder = Path(str(model.tokenizer_path or model.path)).expanduser()
    if not folder.is_dir():
        raise DataError(f"No tokenizer folder at {folder}", hint="set actor_rollout_ref.model.path to a local folder")
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except Exception as error:  # transformers raises many classes; each means that the folder is unusable
        raise DataError(f"Cannot read a tokenizer from {folder}: {' '.join(str(error).split())[:300]}") from error
    for name in ("eos_token", "pad_token"):
        if getattr(tokenizer, name) is None:
            raise DataError(
                f"The tokenizer in {folder} has no {name}",
                hint=f'add "{name}": "<one of its tokens>" to {folder / "tokenizer_config.json"}',
            )
    return tokenizer


def load_prompts(config: Config, tokenizer: Any) -> Prompts:
    """Read and tokenize all prompts.

    Raises:
        DataError: A file is missing or empty, a line is malformed, a column is absent, a prompt is too long,
            or fewer prompts remain than one batch takes.
    """
    data = config.data
    train, dropped = _load(data.train_files, data, data.train_max_samples, tokenizer)
    if len(train) < data.train_batch_size:
        raise DataError(
            f"{_names(data.train_files)} holds {len(train)} usable prompts, fewer than data.train_batch_size="
            f"{data.train_batch_size} ({dropped} exceed data.max_prompt_length={data.max_prompt_length})"
        )
    validation, more = _load(data.val_files, data, data.val_max_samples, tokenizer) if data.val_files else (train, 0)
    if not validation:
        raise DataError(f"All prompts of {_names(data.val_files)} are longer than {data.max_prompt_length} tokens")
    return Prompts(tuple(train), tuple(validation), dropped + more, tokenizer.eos_token_id, tokenizer.pad_token_id)


def steps_per_epoch(config: Config, prompts: Prompts) -> int:
    """How many whole batches one pass gives; the rest of the pass is left out, as in verl."""
    return len(prompts.train) // config.data.train_batch_size


def batches(config: Config, prompts: Prompts) -> Iterator[list[Prompt]]:
    """Yield training batches without end; the order of epoch e is a function of the seed and e alone."""
    size, epoch = config.data.train_batch_size, 0
    while True:
        order = _order(len(prompts.train), config.data, epoch)
        for start in range(0, len(order) - size + 1, size):
            yield [prompts.train[index] for index in order[start : start + size]]
        epoch += 1


def _order(count: int, data: DataConfig, epoch: int) -> list[int]:
    if not data.shuffle:
        return list(range(count))
    generator = torch.Generator().manual_seed(data.seed * 1_000_003 + epoch)
    order: list[int] = torch.randperm(count, generator=generator).tolist()
    return order


def _load(files: Sequence[str], data: DataConfig, limit: int, tokenizer: Any) -> tuple[list[Prompt], int]:
    kept: list[Prompt] = []
    dropped = 0
    for place, row in _rows(files, limit):
        prompt = _prompt(row, place, data.prompt_key, tokenizer)
        if len(prompt.tokens) <= data.max_prompt_length:
            kept.append(prompt)
        elif data.filter_overlong_prompts:
            dropped += 1
        else:
            raise DataError(
                f"{place}: the prompt has {len(prompt.tokens)} tokens, more than "
                f"data.max_prompt_length={data.max_prompt_length}",
                hint="raise that, or leave such prompts out with data.filter_overlong_prompts=true",
            )
    return kept, dropped


def _rows(files: Sequence[str], limit: int) -> Iterator[tuple[str, Mapping[str, Any]]]:
    taken = 0
    for name in files:
        path = Path(name).expanduser()
        if not path.is_file():
            raise DataError(f"No prompt file at {path}")
        read = _read_parquet if path.suffix == ".parquet" else _read_jsonl
        empty = True
        for place, row in read(path):
            if 0 <= limit <= taken:
                return
            empty, taken = False, taken + 1
            yield place, row
        if empty:
            raise DataError(f"{path} is empty; expected at least one prompt")


def _read_jsonl(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for number, line in enumerate(path.read_bytes().split(b"\n"), start=1):
        if line.strip():
            yield f"{path}, line {number}", _parse_line(line, f"{path}, line {number}")


def _parse_line(line: bytes, place: str) -> Mapping[str, Any]:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise DataError(f"{place}: not valid JSON ({error})", hint="each line is one JSON object") from error
    if not isinstance(row, dict):
        raise DataError(f"{place}: found {type(row).__name__}, expected one JSON object per line")
    return row


def _read_parquet(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    from pyarrow import ArrowException, parquet

    try:
        rows = parquet.read_table(path).to_pylist()
    except (ArrowException, OSError) as error:
        raise DataError(f"{path} is not a readable parquet file: {' '.join(str(error).split())}") from error
    for number, row in enumerate(rows, start=1):
        yield f"{path}, row {number}", row


def _prompt(row: Mapping[str, Any], place: str, prompt_key: str, tokenizer: Any) -> Prompt:
    if prompt_key in row:
        text, tokens = _tokenize(row[prompt_key], place, prompt_key, tokenizer)
        source = str(row.get("data_source") or "")
        return Prompt(tokens, text, source, _ground_truth(row, place), _extra_info(row, place))
    if "question" in row and "answer" in row:
        text, tokens = _tokenize(row["question"], place, "question", tokenizer)
        return Prompt(tokens, text, GSM8K_SOURCE, _gsm8k_truth(row["answer"], place))
    columns = ", ".join(sorted(row)) or "none"
    raise DataError(
        f"{place}: no column {prompt_key!r} (columns: {columns})",
        hint="set data.prompt_key, or use the columns question and answer of GSM8K",
    )


def _ground_truth(row: Mapping[str, Any], place: str) -> Any:
    reward_model = row.get("reward_model")
    if reward_model is None:
        return None
    if not isinstance(reward_model, Mapping) or "ground_truth" not in reward_model:
        raise DataError(f'{place}: reward_model is {reward_model!r}; expected an object with the key "ground_truth"')
    return reward_model["ground_truth"]


def _extra_info(row: Mapping[str, Any], place: str) -> Mapping[str, Any]:
    extra = row.get("extra_info") or {}
    if not isinstance(extra, Mapping):
        raise DataError(f"{place}: extra_info is {extra!r}; expected an object")
    return extra


def _gsm8k_truth(answer: Any, place: str) -> str:
    if not isinstance(answer, str) or GSM8K_MARK not in answer:
        raise DataError(f"{place}: the answer {answer!r} does not end in '{GSM8K_MARK} <number>'")
    return answer.rsplit(GSM8K_MARK, 1)[1].strip().replace(",", "")


def _tokenize(value: Any, place: str, column: str, tokenizer: Any) -> tuple[str, tuple[int, ...]]:
    text, is_chat = (value, False) if isinstance(value, str) else _chat_text(value, place, column, tokenizer)
    # A chat template writes its own start token.
    tokens = tuple(tokenizer.encode(text, add_special_tokens=not is_chat))
    if not tokens:
        raise DataError(f"{place}: the column {column!r} holds an empty prompt")
    return text, tokens


def _chat_text(value: Any, place: str, column: str, tokenizer: Any) -> tuple[str, bool]:
    """Render chat messages; (text, whether a template did it)."""
    messages = _messages(value, place, column)
    if tokenizer.chat_template is not None:
        return _apply_template(messages, place, tokenizer), True
    if [message["role"] for message in messages] != ["user"]:
        roles = ", ".join(message["role"] for message in messages)
        raise DataError(
            f"{place}: the tokenizer has no chat template, so only one user message is usable; found {roles}",
            hint="give the prompt as text, or add a chat_template to the tokenizer",
        )
    return messages[0]["content"], False


def _apply_template(messages: list[dict[str, str]], place: str, tokenizer: Any) -> str:
    from jinja2 import TemplateError

    try:
        return str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))
    except TemplateError as error:
        raise DataError(f"{place}: the tokenizer's chat template refuses the messages: {error}") from error


def _messages(value: Any, place: str, column: str) -> list[dict[str, str]]:
    def is_message(item: Any) -> bool:
        return isinstance(item, Mapping) and all(isinstance(item.get(key), str) for key in ("role", "content"))

    if not isinstance(value, list) or not value or not all(is_message(item) for item in value):
        raise DataError(f"{place}: the column {column!r} is {value!r}; expected text or messages with role and content")
    return [{"role": item["role"], "content": item["content"]} for item in value]


def _names(files: Sequence[str]) -> str:
    return ", ".join(files)
