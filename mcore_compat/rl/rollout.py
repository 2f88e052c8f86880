"""The rollout engine ``hf``: a transformers copy of the actor that is fed through the weight stream.

Sampling adds Gumbel noise to the logits and takes the largest (the Gumbel-max trick), where the noise is a
pure function of (key of the response, position, token). Together with fixed shapes, a response depends on its
key, its prompt and the weights only: not on the other prompts of the call, and so not on how prompts are
split over ranks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig
from transformers.generation import (
    LogitsProcessorList,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from mcore_compat.contracts import RolloutEngine, Sampling, TrainingBackend
from mcore_compat.errors import DataError, WeightsError
from mcore_compat.rl.gumbel import AddGumbelNoise


class HFRollout:
    """Generates with transformers; satisfies :class:`mcore_compat.contracts.RolloutEngine`.

    Args:
        model: A causal language model. It is used as it is and its weights are overwritten by
            :meth:`load_weights`.
        prompt_width: Every prompt is padded to this many tokens on the left.
        pad_token_id: Pads prompts.
        eos_token_ids: Tokens that end a response.
        batch_size: Responses generated at a time; a smaller rest is filled up, so that shapes never change.
            ``None``: each call is one batch.

    Attributes:
        model: The transformers model.
        last_change: L2 norm, over all weights, of what the last :meth:`load_weights` changed
            (``actor/param_change``); 0 after the first one, before which there were no weights.
    """

    def __init__(
        self,
        model: Any,
        *,
        prompt_width: int,
        pad_token_id: int,
        eos_token_ids: Collection[int],
        batch_size: int | None = None,
    ) -> None:
        self.model = model.eval().requires_grad_(False)
        # The folder's own generation settings (penalties, sampling) would otherwise fill what we leave unset.
        self.model.generation_config = GenerationConfig()
        self._prompt_width = prompt_width
        self._pad = pad_token_id
        self._ends = frozenset(eos_token_ids)
        self._batch_size = batch_size
        self._loaded = False
        self.last_change = 0.0

    @classmethod
    def from_folder(
        cls,
        folder: Path,
        *,
        prompt_width: int,
        pad_token_id: int,
        eos_token_ids: Collection[int],
        batch_size: int | None = None,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> HFRollout:
        """Build the model that the folder's ``config.json`` describes, without reading its weights.

        Raises:
            WeightsError: The configuration cannot be read or transformers does not know the architecture.
        """
        try:
            model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(str(folder), local_files_only=True))
        except (OSError, ValueError, KeyError) as error:
            raise WeightsError(
                f"no causal language model can be built from {folder}: {error}",
                hint="expected a Hugging Face folder with a config.json that transformers knows",
            ) from error
        # Parameters only: rotary frequencies are buffers and stay fp32, as when transformers loads a
        # checkpoint.
        for parameter in model.parameters():
            parameter.data = parameter.data.to(dtype)
        return cls(
            model.to(device),
            prompt_width=prompt_width,
            pad_token_id=pad_token_id,
            eos_token_ids=eos_token_ids,
            batch_size=batch_size,
        )

    @torch.no_grad()
    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Copy weights in, cast to this copy's dtype, and note by how much they changed.

        Of tied weights one name is enough.

        Raises:
            WeightsError: An unknown name, a wrong shape, or a weight that did not come; the engine then
                refuses to generate until a load succeeds.
        """
        first, self._loaded = not self._loaded, False
        slots = dict(self.model.named_parameters(remove_duplicate=False))
        change = torch.zeros((), dtype=torch.float64, device=self.model.device)
        filled: set[int] = set()
        for name, tensor in weights:
            slot = _slot(slots, name, tensor)
            new = tensor.to(slot.device, slot.dtype)
            change += (new - slot).double().square().sum()
            slot.copy_(new)
            filled.add(id(slot))
        missing = [name for name, slot in slots.items() if id(slot) not in filled]
        if missing:
            raise WeightsError(f"{len(missing)} weights did not come with the stream, the first is {missing[0]}")
        self.last_change = 0.0 if first else change.sqrt().item()
        self._loaded = True

    @torch.no_grad()
    def generate(self, prompts: Sequence[Sequence[int]], sampling: Sampling, keys: Sequence[int]) -> list[list[int]]:
        """Return the response token ids of each prompt, including the end token where one was produced.

        Args:
            prompts: Token ids, 1 to ``prompt_width`` of them.
            sampling: How to sample.
            keys: One integer per prompt.

        Raises:
            WeightsError: No weights were loaded yet.
            DataError: A prompt is empty or longer than ``prompt_width``.
        """
        if not self._loaded:
            raise WeightsError("the rollout engine has no weights yet", hint="call load_weights(actor.stream()) first")
        for row, prompt in enumerate(prompts):
            if not 0 < len(prompt) <= self._prompt_width:
                raise DataError(f"prompt {row} has {len(prompt)} tokens; expected 1 to {self._prompt_width}")
        size = self._batch_size or max(len(prompts), 1)
        responses: list[list[int]] = []
        for start in range(0, len(prompts), size):
            responses += self._batch(prompts[start : start + size], sampling, keys[start : start + size], size)
        return responses

    def _batch(
        self, prompts: Sequence[Sequence[int]], sampling: Sampling, keys: Sequence[int], size: int
    ) -> list[list[int]]:
        spare = size - len(prompts)
        rows = [*prompts, *[prompts[0]] * spare]
        padding = [self._prompt_width - len(row) for row in rows]
        tokens = torch.tensor([[self._pad] * pad + list(row) for pad, row in zip(padding, rows, strict=True)])
        mask = torch.arange(self._prompt_width) >= torch.tensor(padding)[:, None]
        noise_keys = [*keys, *[keys[0]] * spare]
        output = self.model.generate(
            input_ids=tokens.to(self.model.device),
            attention_mask=mask.long().to(self.model.device),
            generation_config=GenerationConfig(
                max_new_tokens=sampling.max_tokens,
                do_sample=False,
                use_cache=True,
                pad_token_id=self._pad,
                eos_token_id=sorted(self._ends) or None,
            ),
            logits_processor=_processors(sampling, noise_keys, self._prompt_width, self.model.device),
        )
        return [self._response(row) for row in output[: len(prompts), self._prompt_width :].tolist()]

    def _response(self, tokens: list[int]) -> list[int]:
        end = next((at for at, token in enumerate(tokens) if token in self._ends), len(tokens) - 1)
        return tokens[: end + 1]


def _slot(slots: dict[str, torch.nn.Parameter], name: str, tensor: torch.Tensor) -> torch.nn.Parameter:
    if name not in slots:
        raise WeightsError(f"the rollout model has no weight {name}; its first is {next(iter(slots))}")
    if tensor.shape != slots[name].shape:
        raise WeightsError(f"{name} came with shape {list(tensor.shape)}; expected {list(slots[name].shape)}")
    return slots[name]


def _processors(
    sampling: Sampling, keys: Sequence[int], prompt_width: int, device: torch.device
) -> LogitsProcessorList:
    chain: list[Any] = []
    if sampling.temperature == 0:
        return LogitsProcessorList(chain)
    if sampling.temperature != 1:
        chain.append(TemperatureLogitsWarper(float(sampling.temperature)))
    if sampling.top_k > 0:
        chain.append(TopKLogitsWarper(sampling.top_k))
    if sampling.top_p < 1:
        chain.append(TopPLogitsWarper(sampling.top_p))
    return LogitsProcessorList([*chain, AddGumbelNoise(keys, prompt_width, device)])


def generate_on_all(
    backend: TrainingBackend,
    engine: RolloutEngine,
    prompts: Sequence[Sequence[int]],
    sampling: Sampling,
    keys: Sequence[int],
) -> list[list[int]]:
    """Generate with the prompts split over data-parallel ranks; every rank gets all responses, in order.

    Args:
        backend: Knows the data-parallel ranks and exchanges the results.
        engine: This rank's engine.
        prompts: All prompts, the same on every rank.
        sampling: How to sample.
        keys: One integer per prompt.
    """

    def share(rank: int, size: int) -> list[list[int]]:
        rows = slice(len(prompts) * rank // size, len(prompts) * (rank + 1) // size)
        return engine.generate(prompts[rows], sampling, keys[rows])

    return backend.each_data_parallel_rank(share)
