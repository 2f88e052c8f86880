"""The demo's world: sums of two digits, their tokenizer, a tiny Llama, and a textbook with a mistake."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

PAD, EOS = "<pad>", "<eos>"
CHARACTERS = (PAD, EOS, *"0123456789+=")
SUMS = tuple((a, b) for a in range(10) for b in range(10))
PROMPT_LENGTH = len("3+4=")
RESPONSE_LENGTH = len("12") + 1
# How often the textbook leaves out the 1 of a two-digit result.
FORGOTTEN_CARRY = 0.7


def write_model(folder: Path, seed: int) -> None:
    """Write a Llama with random weights and its tokenizer as a Hugging Face folder."""
    from safetensors.torch import save_file
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        architectures=["LlamaForCausalLM"],
        vocab_size=len(CHARACTERS),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=CHARACTERS.index(EOS),
        pad_token_id=CHARACTERS.index(PAD),
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        weights = LlamaForCausalLM(config).state_dict()
    folder.mkdir(parents=True, exist_ok=True)
    config.save_pretrained(folder)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    _tokenizer().save_pretrained(folder)


def write_prompts(file: Path) -> None:
    """Write all sums as prompts in verl's columns."""
    rows = [
        {"data_source": "sums", "prompt": f"{a}+{b}=", "reward_model": {"ground_truth": str(a + b)}} for a, b in SUMS
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def textbook(step: int, seed: int) -> tuple[list[list[int]], list[list[int]]]:
    """Return every sum once: token ids of the prompts, and of the answers, of which some lack their carry."""
    generator = torch.Generator().manual_seed(seed * 1_000_003 + step)
    draws = torch.rand(len(SUMS), generator=generator).tolist()
    prompts = [encode(f"{a}+{b}=") for a, b in SUMS]
    forgets = [draw < FORGOTTEN_CARRY for draw in draws]
    results = [(a + b) % 10 if forget else a + b for (a, b), forget in zip(SUMS, forgets, strict=True)]
    return prompts, [[*encode(str(result)), CHARACTERS.index(EOS)] for result in results]


def encode(text: str) -> list[int]:
    """Return the token ids of a text."""
    return [CHARACTERS.index(character) for character in text]


def score_folder(folder: Path | str) -> float:
    """Let transformers answer all sums greedily with the model in a folder; the share it gets right."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    model = AutoModelForCausalLM.from_pretrained(folder, local_files_only=True, dtype=torch.float32).eval()
    prompts = tokenizer([f"{a}+{b}=" for a, b in SUMS], return_tensors="pt")
    output = model.generate(**prompts, max_new_tokens=RESPONSE_LENGTH, do_sample=False)
    answers = tokenizer.batch_decode(output[:, PROMPT_LENGTH:], skip_special_tokens=True)
    right = sum(answer == str(a + b) for (a, b), answer in zip(SUMS, answers, strict=True))
    return float(right) / len(SUMS)


def _tokenizer() -> Any:
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {character: index for index, character in enumerate(CHARACTERS)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=PAD))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=EOS, pad_token=PAD)
