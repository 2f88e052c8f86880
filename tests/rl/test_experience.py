from __future__ import annotations

from pathlib import Path

import pytest
import torch

from mcore_compat.contracts import OptimizerSettings
from mcore_compat.errors import ConfigError, DataError, NumericalError
from mcore_compat.rl.experience import make_experience, pack, sequence_logprobs
from mcore_compat.rl.settings import AlgorithmSettings, PPOSettings
from tests.rl.conftest import VOCAB
from tests.rl.torch_backend import TorchBackend, TorchModel

PROMPTS = [[1, 5], [1, 6, 7]]
RESPONSES = [[8, 9, 2], [4, 2]]
SETTINGS = PPOSettings(log_prob_micro_batch_size_per_gpu=1)


def sequences() -> dict[str, torch.Tensor]:
    return pack(PROMPTS, RESPONSES, width=7, pad_token_id=0)


def models(folder: Path) -> tuple[TorchModel, TorchModel, TorchModel]:
    backend, settings = TorchBackend(VOCAB), OptimizerSettings()
    return backend.actor(folder, settings), backend.critic(folder, settings), backend.reference(folder)


def experience(folder: Path, settings: PPOSettings = SETTINGS, **changes: object) -> dict[str, torch.Tensor]:
    actor, critic, reference = models(folder)
    torch.nn.init.normal_(critic.module.score.weight, generator=torch.Generator().manual_seed(0))
    arguments = {
        "actor": actor,
        "critic": critic,
        "reference": reference,
        "sequences": sequences(),
        "scores_R": torch.tensor([1.0, -1.0]),
        "settings": settings,
        "vocab": TorchBackend(VOCAB).vocab,
        "kl_coef": 0.1,
    }
    return make_experience(**{**arguments, **changes})  # type: ignore[arg-type]


def test_layout() -> None:
    batch = sequences()
    assert batch["tokens"].tolist() == [[1, 5, 8, 9, 2, 0, 0], [1, 6, 7, 4, 2, 0, 0]]
    assert batch["targets"].tolist() == [[5, 8, 9, 2, 0, 0, 0], [6, 7, 4, 2, 0, 0, 0]]
    assert batch["response_mask"].int().tolist() == [[0, 1, 1, 1, 0, 0, 0], [0, 0, 1, 1, 0, 0, 0]]
    for row, response in enumerate(RESPONSES):
        assert batch["targets"][row][batch["response_mask"][row]].tolist() == response
    assert batch["prompt_lengths"].tolist() == [2, 3]
    assert batch["response_lengths"].tolist() == [3, 2]


def test_a_full_row_never_uses_the_last_column() -> None:
    batch = pack([[1]], [[3, 4]], width=3, pad_token_id=0)
    assert batch["response_mask"].int().tolist() == [[1, 1, 0]]


@pytest.mark.parametrize(
    ("prompts", "responses", "message"),
    [
        ([[1]], [[]], "row 0 has an empty response"),
        ([[]], [[1]], "row 0 has an empty prompt"),
        ([[1], [1] * 4], [[2], [2] * 4], "row 1 has 4 \\+ 4 tokens, more than the width 7"),
        ([[1], [1]], [[2]], "2 prompts have 1 responses"),
    ],
)
def test_rows_that_do_not_fit(prompts: list[list[int]], responses: list[list[int]], message: str) -> None:
    with pytest.raises(DataError, match=message):
        pack(prompts, responses, width=7, pad_token_id=0)


def test_logprobs_are_those_of_the_next_token(tiny_folder: Path) -> None:
    actor, batch = models(tiny_folder)[0], sequences()
    found = sequence_logprobs(actor, batch, TorchBackend(VOCAB).vocab, micro_batch_size=1, temperature=0.7)
    with torch.no_grad():
        logp = (actor.module(batch["tokens"]) / 0.7).log_softmax(-1)
    for row, (prompt, response) in enumerate(zip(PROMPTS, RESPONSES, strict=True)):
        for offset, token in enumerate(response):
            at = len(prompt) + offset - 1
            assert found[row, at].item() == pytest.approx(logp[row, at, token].item(), abs=1e-5)


def test_actor_and_reference_agree_to_the_last_bit_before_any_update(tiny_folder: Path) -> None:
    batch = experience(tiny_folder)
    assert torch.equal(batch["old_logprobs"], batch["ref_logprobs"])


def test_modes_are_restored(tiny_folder: Path) -> None:
    actor, critic, reference = models(tiny_folder)
    actor.module.hf.lm_head.eval()
    experience(tiny_folder, actor=actor, critic=critic, reference=reference)
    assert actor.module.training
    assert not actor.module.hf.lm_head.training


def test_without_whitening_and_lambda_one_returns_are_the_scores(tiny_folder: Path) -> None:
    settings = PPOSettings(algorithm=AlgorithmSettings(whiten_advantages=False))
    batch = experience(tiny_folder, settings)
    mask, scores = batch["response_mask"], torch.tensor([[1.0], [-1.0]])
    assert torch.allclose(batch["returns"][mask], scores.expand(mask.shape)[mask], atol=1e-6)
    assert torch.allclose(batch["advantages"][mask], (batch["returns"] - batch["values"])[mask], atol=1e-6)
    assert batch["values"][mask].abs().min() > 0


def test_kl_enters_the_reward(tiny_folder: Path, untied_folder: Path) -> None:
    settings = PPOSettings(algorithm=AlgorithmSettings(use_kl_in_reward=True, kl_penalty="kl"))
    other = TorchBackend(VOCAB).reference(untied_folder)
    batch = experience(tiny_folder, settings, reference=other, kl_coef=0.5)
    kl = ((batch["old_logprobs"] - batch["ref_logprobs"]) * batch["response_mask"]).sum(dim=1)
    assert kl.abs().min() > 0
    assert torch.allclose(batch["rewards"].sum(dim=1), torch.tensor([1.0, -1.0]) - 0.5 * kl, atol=1e-6)


def test_a_reference_is_needed_only_for_its_kl(tiny_folder: Path) -> None:
    assert "ref_logprobs" not in experience(tiny_folder, reference=None)
    settings = PPOSettings(algorithm=AlgorithmSettings(use_kl_in_reward=True))
    with pytest.raises(ConfigError, match="there is no reference"):
        experience(tiny_folder, settings, reference=None)


def test_scores_that_are_not_finite(tiny_folder: Path) -> None:
    with pytest.raises(NumericalError, match=r"scores are not finite; .* at \[1\] of \[2\]"):
        experience(tiny_folder, scores_R=torch.tensor([0.0, float("nan")]))


def test_values_that_are_not_finite(tiny_folder: Path) -> None:
    critic = models(tiny_folder)[1]
    torch.nn.init.constant_(critic.module.score.weight, float("inf"))
    with pytest.raises(NumericalError, match=r"values are not finite; .* at \[0, 1\]"):
        experience(tiny_folder, critic=critic)
