"""Case C08: a vocabulary of 50 that is padded to 64 on two tensor-parallel ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

import mcore_compat
from mcore_compat.bridge import MegatronBackend, MegatronModel
from mcore_compat.contracts import Batch, OptimizerSettings, ParallelLayout, Sampling
from mcore_compat.errors import WeightsError
from mcore_compat.rl.logprobs import logprobs_and_entropy
from mcore_compat.rl.rollout import HFRollout
from tests.contract.programs.folders import llama_folder, steep_weights
from tests.contract.programs.small_gpt import some_tokens

REAL, PADDED, WRONG = 50, 64, 57
# Nearly uniform, so that an index that can be drawn is drawn.
HOT = Sampling(max_tokens=16, temperature=1000.0)
PROMPTS = 64


def padded_vocabulary(steps: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Log-probabilities, samples and export of a model whose padding rows hold large values; and refused rows."""
    mcore_compat.reset()
    backend = MegatronBackend(ParallelLayout(tp=2), device="cpu")
    folder = llama_folder(Path(f"good{backend.rank}"), steep_weights(1, REAL), vocab_size=REAL)
    actor = backend.actor(folder, OptimizerSettings())
    _fill_padding(backend, actor)
    streamed = dict(actor.stream())
    stored = load_file(folder / "model.safetensors")
    return {
        "local rows": backend.vocab.stop - backend.vocab.start,
        "exported": {name: list(tensor.shape) for name, tensor in streamed.items() if "embed" in name},
        "equal": streamed.keys() == stored.keys() and all(torch.equal(streamed[n], stored[n]) for n in stored),
        "errors": _errors(backend, actor, folder),
        "drawn": _drawn(actor, folder),
        "refusal": _refusal(backend),
    }


@torch.no_grad()
def _fill_padding(backend: MegatronBackend, actor: MegatronModel) -> None:
    first = max(REAL - backend.vocab.start, 0)
    for name, parameter in actor.named_parameters():
        if "word_embeddings" in name:
            parameter[first:].fill_(3.0)


def _errors(backend: MegatronBackend, actor: MegatronModel, folder: Path) -> dict[str, float]:
    """Largest differences to what transformers computes in float64 over the real columns."""
    from transformers import AutoModelForCausalLM

    tokens = some_tokens(3, REAL)

    def output(logits: torch.Tensor, batch: Batch) -> dict[str, torch.Tensor]:
        logprob, entropy = logprobs_and_entropy(logits[:, :-1], batch["tokens"][:, 1:], backend.vocab)
        return {"logprob": logprob, "entropy": entropy}

    found = actor.evaluate({"tokens": tokens}, 3, output)
    dense = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64, attn_implementation="eager")
    with torch.no_grad():
        wanted = dense.eval()(tokens).logits[:, :-1].log_softmax(-1)
    expected = {
        "logprob": wanted.gather(-1, tokens[:, 1:, None])[..., 0],
        "entropy": -(wanted.exp() * wanted).sum(-1),
    }
    return {name: (found[name] - expected[name]).abs().max().item() for name in expected}


def _drawn(actor: MegatronModel, folder: Path) -> dict[str, int]:
    engine = HFRollout.from_folder(folder, prompt_width=1, pad_token_id=0, eos_token_ids=[])
    engine.load_weights(actor.stream())
    responses = engine.generate([[1]] * PROMPTS, HOT, range(PROMPTS))
    tokens = [token for response in responses for token in response]
    return {"tokens": len(tokens), "distinct": len(set(tokens)), "largest": max(tokens)}


def _refusal(backend: MegatronBackend) -> str:
    folder = llama_folder(Path(f"wrong{backend.rank}"), steep_weights(1, WRONG), vocab_size=REAL)
    try:
        backend.reference(folder)
    except WeightsError as error:
        return str(error)
    return ""
