"""Scores of responses: built-in comparisons, or a Python function of the user."""

from __future__ import annotations

import importlib.util
import inspect
import math
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mcore_compat.errors import DataError
from mcore_compat.rl.config import RewardFunctionConfig
from mcore_compat.rl.data import GSM8K_MARK, GSM8K_SOURCE, Prompt

ComputeScore = Callable[..., Any]
Extra = Mapping[str, Any]
_NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")
# verl's batch reward manager calls a function by these names, with one list each.
_BATCH_STYLE = "solution_strs"


class Scorer:
    """Scores responses with the function that the settings name.

    Args:
        settings: Where the function is; see :class:`RewardFunctionConfig`.

    Raises:
        DataError: The file or the function is missing or fails on import.
    """

    def __init__(self, settings: RewardFunctionConfig) -> None:
        self.name, self._function = _find(settings)
        self._takes_batches = _BATCH_STYLE in inspect.signature(self._function).parameters

    def __call__(self, prompts: Sequence[Prompt], responses: Sequence[str]) -> list[float]:
        """Score one response per prompt.

        Raises:
            DataError: The function raised, or did not give one finite number per response.
        """
        results = self._in_batch(prompts, responses) if self._takes_batches else self._one_by_one(prompts, responses)
        return [_number(result, f"{self.name}, sample {index}") for index, result in enumerate(results)]

    def _one_by_one(self, prompts: Sequence[Prompt], responses: Sequence[str]) -> list[Any]:
        results = []
        for index, (prompt, response) in enumerate(zip(prompts, responses, strict=True)):
            arguments = {
                "data_source": prompt.data_source,
                "solution_str": response,
                "ground_truth": prompt.ground_truth,
                "extra_info": dict(prompt.extra_info),
            }
            results.append(self._call(arguments, f"sample {index}, response {_short(response)}"))
        return results

    def _in_batch(self, prompts: Sequence[Prompt], responses: Sequence[str]) -> list[Any]:
        arguments = {
            "data_sources": [prompt.data_source for prompt in prompts],
            "solution_strs": list(responses),
            "ground_truths": [prompt.ground_truth for prompt in prompts],
            "extra_infos": [dict(prompt.extra_info) for prompt in prompts],
        }
        results = self._call(arguments, f"a batch of {len(prompts)} samples")
        try:
            found = list(results)
        except TypeError as error:
            raise DataError(f"Reward function {self.name} returned {results!r}; expected a list of numbers") from error
        if len(found) != len(prompts):
            raise DataError(f"Reward function {self.name} returned {len(found)} scores for {len(prompts)} samples")
        return found

    def _call(self, arguments: dict[str, Any], where: str) -> Any:
        try:
            return self._function(**arguments)
        except Exception as error:  # whatever the user's code raises is named, with the sample it raised on
            cause = f"{type(error).__name__}: {error}"
            raise DataError(f"Reward function {self.name} raised {cause} ({where})") from error


def exact_match(data_source: str, solution_str: str, ground_truth: Any, extra_info: Extra) -> float:
    """1 where the response, without surrounding space, is the ground truth; else 0."""
    return float(solution_str.strip() == str(_present(ground_truth)).strip())


def gsm8k(data_source: str, solution_str: str, ground_truth: Any, extra_info: Extra) -> float:
    """1 where the number after the response's last ``####`` equals the ground truth; else 0."""
    _, mark, answer = solution_str.rpartition(GSM8K_MARK)
    number = _NUMBER.search(answer) if mark else None
    return float(number is not None and _same_number(number.group(), str(_present(ground_truth))))


def by_data_source(data_source: str, solution_str: str, ground_truth: Any, extra_info: Extra) -> float:
    """GSM8K's rule for its rows, exact match for all others."""
    rule = gsm8k if data_source == GSM8K_SOURCE else exact_match
    return rule(data_source, solution_str, ground_truth, extra_info)


def _present(ground_truth: Any) -> Any:
    if ground_truth is None:
        raise ValueError("the row has no reward_model.ground_truth; set custom_reward_function.path")
    return ground_truth


_BUILT_IN: dict[str, ComputeScore] = {"exact_match": exact_match, "gsm8k": gsm8k}


def _find(settings: RewardFunctionConfig) -> tuple[str, ComputeScore]:
    if settings.path is None:
        return _built_in(settings.name)
    file, _, suffix = settings.path.partition(".py:")
    path = Path(f"{file}.py" if suffix else file).expanduser()
    name = suffix or settings.name or "compute_score"
    function = getattr(_run_file(path), name, None)
    if not callable(function):
        raise DataError(f"{path} defines no function {name!r}", hint="set custom_reward_function.name")
    return f"{path.name}:{name}", function


def _built_in(name: str | None) -> tuple[str, ComputeScore]:
    if name is None:
        return "by_data_source", by_data_source
    if name not in _BUILT_IN:
        raise DataError(
            f"No built-in reward function {name!r}; there are {', '.join(_BUILT_IN)}",
            hint="set custom_reward_function.path to the file that defines it",
        )
    return name, _BUILT_IN[name]


def _run_file(path: Path) -> Any:
    if not path.is_file():
        raise DataError(f"No reward function file at {path}", hint="set custom_reward_function.path")
    module_name = f"mcore_compat_reward_{path.stem}"
    spec = importlib.util.spec_from_file_location(module_name, path)
    if spec is None or spec.loader is None:
        raise DataError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module  # dataclasses and pickle look their module up there
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise DataError(f"Importing the reward file {path} raised {type(error).__name__}: {error}") from error
    return module


def _number(result: Any, where: str) -> float:
    value: Any = result.get("score") if isinstance(result, dict) else result
    try:
        score = float(value)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"Reward function {where}: returned {result!r}; expected a number or a dict with 'score'"
        ) from error
    if not math.isfinite(score):
        raise DataError(f"Reward function {where}: returned {score}; expected a finite number")
    return score


def _same_number(found: str, expected: str) -> bool:
    try:
        return float(found.replace(",", "")) == float(expected.replace(",", ""))
    except ValueError:
        return False


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:60]}…")
