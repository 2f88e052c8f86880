from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from mcore_compat.contracts import OptimizerSettings, Sampling
from mcore_compat.errors import DataError, WeightsError
from mcore_compat.rl.rollout import HFRollout, generate_on_all
from tests.rl.conftest import VOCAB
from tests.rl.torch_backend import TorchBackend

PROMPTS = [[1, 5, 7], [1, 9], [1, 3, 4, 6, 8], [1]]
KEYS = [11, 12, 13, 14]
SAMPLING = Sampling(max_tokens=12)


def engine(folder: Path, *, batch_size: int | None = None, eos: tuple[int, ...] = (2,)) -> HFRollout:
    rollout = HFRollout.from_folder(folder, prompt_width=6, pad_token_id=0, eos_token_ids=eos, batch_size=batch_size)
    rollout.load_weights(weights(folder))
    return rollout


def weights(folder: Path, scale: float = 6.0) -> list[tuple[str, torch.Tensor]]:
    """Large weights: the model prefers some tokens clearly, and its choice depends on the prompt."""
    actor = TorchBackend(VOCAB).actor(folder, OptimizerSettings())
    return [(name, tensor * scale) for name, tensor in actor.stream()]


def test_greedy_equals_a_plain_loop_over_full_forwards(tiny_folder: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(tiny_folder).float().eval()
    model.load_state_dict(dict(weights(tiny_folder)), strict=False)
    expected = []
    for prompt in PROMPTS:
        tokens = list(prompt)
        with torch.no_grad():
            while len(tokens) < len(prompt) + 12 and tokens[len(prompt) :][-1:] != [2]:
                tokens.append(int(model(torch.tensor([tokens])).logits[0, -1].argmax()))
        expected.append(tokens[len(prompt) :])
    assert engine(tiny_folder).generate(PROMPTS, Sampling(12, temperature=0.0), KEYS) == expected


@pytest.mark.parametrize("batch_size", [None, 3])
def test_a_response_does_not_depend_on_the_others(tiny_folder: Path, batch_size: int | None) -> None:
    rollout = engine(tiny_folder, batch_size=batch_size)
    together = rollout.generate(PROMPTS, SAMPLING, KEYS)
    assert together == [rollout.generate([p], SAMPLING, [k])[0] for p, k in zip(PROMPTS, KEYS, strict=True)]
    assert together[::-1] == rollout.generate(PROMPTS[::-1], SAMPLING, KEYS[::-1])
    assert together != rollout.generate(PROMPTS, SAMPLING, [k + 1 for k in KEYS])


def test_sampled_tokens_follow_the_softmax(tiny_folder: Path) -> None:
    rollout = engine(tiny_folder)
    model = AutoModelForCausalLM.from_pretrained(tiny_folder).float().eval()
    model.load_state_dict(dict(weights(tiny_folder)), strict=False)
    with torch.no_grad():
        wanted = (model(torch.tensor([[1, 5, 7]])).logits[0, -1] / 1.5).softmax(0)
    drawn = rollout.generate([[1, 5, 7]] * 4000, Sampling(1, temperature=1.5), range(4000))
    shares = torch.bincount(torch.tensor(drawn)[:, 0], minlength=VOCAB) / 4000
    assert (shares - wanted).abs().max() < 0.04


def test_top_k_and_top_p_cut_the_tail(tiny_folder: Path) -> None:
    rollout = engine(tiny_folder)
    free = rollout.generate([[1, 5, 7]] * 500, Sampling(1, temperature=4.0), range(500))
    top = rollout.generate([[1, 5, 7]] * 500, Sampling(1, temperature=4.0, top_k=2), range(500))
    nucleus = rollout.generate([[1, 5, 7]] * 500, Sampling(1, temperature=4.0, top_p=1e-6), range(500))
    greedy = rollout.generate([[1, 5, 7]], Sampling(1, temperature=0.0), [0])
    assert len({row[0] for row in free}) > 5
    assert len({row[0] for row in top}) == 2
    assert {row[0] for row in nucleus} == {greedy[0][0]}


def test_responses_end_with_the_first_end_token(tiny_folder: Path) -> None:
    rollout = engine(tiny_folder, eos=(2, 5, 9, 11, 13))
    responses = rollout.generate([[1, 5, 7]] * 64, Sampling(12, temperature=3.0), range(64))
    ends = {2, 5, 9, 11, 13}
    assert any(len(row) < 12 for row in responses)
    for row in responses:
        assert not ends & set(row[:-1])
        assert len(row) == 12 or row[-1] in ends


def test_tied_and_untied_weights_load(tiny_folder: Path, untied_folder: Path) -> None:
    tied = weights(tiny_folder)
    assert "lm_head.weight" not in dict(tied)
    assert "lm_head.weight" in dict(weights(untied_folder))
    rollout = engine(tiny_folder)
    rollout.load_weights([*tied, ("lm_head.weight", dict(tied)["model.embed_tokens.weight"])])
    assert engine(untied_folder).generate([[1]], SAMPLING, [0])


def test_change_is_the_norm_of_the_difference(tiny_folder: Path) -> None:
    rollout = engine(tiny_folder)
    assert rollout.last_change == 0.0
    loaded = weights(tiny_folder)
    rollout.load_weights(loaded)
    assert rollout.last_change == 0.0
    moved = [(name, tensor + 0.5) for name, tensor in loaded]
    rollout.load_weights(moved)
    count = sum(tensor.numel() for _, tensor in loaded)
    assert rollout.last_change == pytest.approx(0.5 * count**0.5, rel=1e-5)


def test_a_bad_stream_is_refused_and_blocks_generation(tiny_folder: Path) -> None:
    rollout, good = engine(tiny_folder), weights(tiny_folder)
    with pytest.raises(WeightsError, match=r"model\.norm\.weight came with shape \[3\]; expected \[32\]"):
        rollout.load_weights([("model.norm.weight", torch.zeros(3))])
    with pytest.raises(WeightsError, match="no weight nonsense"):
        rollout.load_weights([("nonsense", torch.zeros(3))])
    with pytest.raises(WeightsError, match="1 weights did not come"):
        rollout.load_weights(good[:-1])
    with pytest.raises(WeightsError, match="no weights yet"):
        rollout.generate(PROMPTS, SAMPLING, KEYS)
    rollout.load_weights(good)
    assert rollout.generate(PROMPTS, SAMPLING, KEYS)


def test_folder_without_a_model(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="no causal language model"):
        HFRollout.from_folder(tmp_path, prompt_width=4, pad_token_id=0, eos_token_ids=[2])


def test_low_precision_keeps_rotary_frequencies(tiny_folder: Path) -> None:
    rollout = HFRollout.from_folder(
        tiny_folder, prompt_width=6, pad_token_id=0, eos_token_ids=[2], dtype=torch.bfloat16
    )
    rollout.load_weights(weights(tiny_folder))
    assert {p.dtype for p in rollout.model.parameters()} == {torch.bfloat16}
    assert {b.dtype for b in rollout.model.buffers()} == {torch.float32}
    assert rollout.generate(PROMPTS, SAMPLING, KEYS)


@pytest.mark.parametrize("prompt", [[], [1] * 7])
def test_prompts_that_do_not_fit(tiny_folder: Path, prompt: list[int]) -> None:
    with pytest.raises(DataError, match=rf"prompt 1 has {len(prompt)} tokens; expected 1 to 6"):
        engine(tiny_folder).generate([[1], prompt], SAMPLING, [0, 1])


def test_the_split_over_ranks_does_not_show(tiny_folder: Path) -> None:
    class TwoShares(TorchBackend):
        def each_data_parallel_rank(self, work):  # type: ignore[no-untyped-def]
            return [*work(0, 2), *work(1, 2)]

    rollout = engine(tiny_folder)
    split = generate_on_all(TwoShares(VOCAB), rollout, PROMPTS[:3], SAMPLING, KEYS[:3])
    assert split == generate_on_all(TorchBackend(VOCAB), rollout, PROMPTS[:3], SAMPLING, KEYS[:3])
    assert len(split) == 3


def test_nothing_to_do(tiny_folder: Path) -> None:
    assert engine(tiny_folder).generate([], SAMPLING, []) == []
