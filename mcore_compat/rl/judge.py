"""What deals in text, and so lives on rank 0 only: tokenizer, prompts, reward function."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from mcore_compat.rl.config import Config
from mcore_compat.rl.data import Prompt, Prompts, load_prompts, load_tokenizer
from mcore_compat.rl.rewards import Scorer


class Judge:
    """Reads prompts and scores responses. Nothing is loaded before it is used.

    Args:
        config: Settings of the run.
    """

    def __init__(self, config: Config) -> None:
        self._config = config

    def prepare(self) -> Prompts:
        """Load the reward function, the tokenizer and all prompts.

        Raises:
            DataError: One of them cannot be used.
        """
        self._scorer  # noqa: B018 - a broken reward function is reported before anything is computed
        return load_prompts(self._config, self._tokenizer)

    def scores(self, prompts: Sequence[Prompt], responses: Sequence[Sequence[int]]) -> list[float]:
        """Score the responses (token ids), one per prompt."""
        return self._scorer(prompts, [self.text(response) for response in responses])

    def text(self, tokens: Sequence[int]) -> str:
        """Return the text of a response, without special tokens."""
        return str(self._tokenizer.decode(list(tokens), skip_special_tokens=True))

    @cached_property
    def _tokenizer(self) -> Any:
        return load_tokenizer(self._config)

    @cached_property
    def _scorer(self) -> Scorer:
        return Scorer(self._config.custom_reward_function)
