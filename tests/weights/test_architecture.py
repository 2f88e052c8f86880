"""``config.json`` is understood in all spellings, and what cannot be reproduced is refused by name."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mcore_compat.errors import WeightsError
from mcore_compat.weights import read_architecture
from tests.shared_data import shared_path

MINIMAL: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 172,
    "num_hidden_layers": 5,
    "num_attention_heads": 8,
    "vocab_size": 512,
}


def write(folder: Path, **changes: object) -> Path:
    (folder / "config.json").write_text(json.dumps({**MINIMAL, **changes}))
    return folder


def test_a_real_folder() -> None:
    found = read_architecture(shared_path("data/stories260k"))
    assert (found.family, found.num_layers, found.hidden_size, found.ffn_hidden_size) == ("llama", 5, 64, 172)
    assert (found.num_heads, found.num_kv_heads, found.head_dim) == (8, 4, 8)
    assert (found.vocab_size, found.max_positions, found.tied) == (512, 512, True)
    assert (found.rms_eps, found.rope_theta, found.rope_scaling) == (1e-5, 10000.0, None)


def test_absent_keys_mean_what_transformers_fills_in(tmp_path: Path) -> None:
    llama = read_architecture(write(tmp_path))
    assert (llama.num_kv_heads, llama.head_dim, llama.max_positions, llama.tied) == (8, 8, 2048, False)
    qwen3 = read_architecture(write(tmp_path, model_type="qwen3", num_attention_heads=32))
    assert (qwen3.num_kv_heads, qwen3.head_dim, qwen3.qk_norm, qwen3.qkv_bias) == (32, 128, True, False)


@pytest.mark.parametrize("kind", ["llama2", "llama3", "linear", "qwen2", "qwen3"])
def test_every_size_is_the_one_transformers_reads(folders: dict[str, Path], kind: str) -> None:
    from transformers import AutoConfig

    found, expected = read_architecture(folders[kind]), AutoConfig.from_pretrained(folders[kind])
    assert found.num_kv_heads == expected.num_key_value_heads
    assert found.head_dim == (getattr(expected, "head_dim", None) or 32 // 4)
    assert found.tied == expected.tie_word_embeddings
    assert found.rms_eps == expected.rms_norm_eps
    assert found.rope_theta == expected.rope_parameters["rope_theta"]


def test_old_and_new_rope_keys_say_the_same(tmp_path: Path) -> None:
    numbers = {
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    old = write(tmp_path, rope_theta=500000.0, rope_scaling={"rope_type": "llama3", **numbers})
    first = read_architecture(old)
    new = write(tmp_path, rope_parameters={"rope_type": "llama3", "rope_theta": 500000.0, **numbers})
    assert read_architecture(new) == first
    assert first.rope_theta == 500000.0
    assert first.rope_scaling == {"rope_type": "llama3", **numbers}


def test_the_oldest_rope_key(tmp_path: Path) -> None:
    found = read_architecture(write(tmp_path, rope_scaling={"type": "linear", "factor": 2.0}))
    assert found.rope_scaling == {"rope_type": "linear", "factor": 2.0}


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"model_type": "gpt2"}, "unknown model_type 'gpt2'; known: llama, qwen2, qwen3"),
        ({"attention_bias": True}, "attention_bias is True"),
        ({"mlp_bias": True}, "mlp_bias is True"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
        ({"model_type": "qwen2", "use_sliding_window": True}, "use_sliding_window is True"),
        ({"quantization_config": {"bits": 4}}, "quantization_config is"),
        ({"hidden_size": None}, "hidden_size is None, expected a positive integer"),
        ({"num_hidden_layers": "5"}, "num_hidden_layers is '5'"),
        ({"num_key_value_heads": 3}, "8 num_attention_heads cannot share 3 num_key_value_heads"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 2.0}}, "unknown rope scaling 'yarn'"),
        ({"rope_scaling": {"rope_type": "linear"}}, "'factor' is missing"),
        ({"rope_parameters": {"full_attention": {"rope_type": "default"}}}, "differ between layers"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor is 0.5"),
    ],
)
def test_a_refusal_names_the_key(tmp_path: Path, changes: dict[str, object], named: str) -> None:
    with pytest.raises(WeightsError) as caught:
        read_architecture(write(tmp_path, **changes))
    assert named in str(caught.value)
    assert str(tmp_path / "config.json") in str(caught.value)


def test_a_missing_key_is_named(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({k: v for k, v in MINIMAL.items() if k != "vocab_size"}))
    with pytest.raises(WeightsError, match="'vocab_size' is missing"):
        read_architecture(tmp_path)


@pytest.mark.parametrize(("text", "named"), [("{", "is not JSON"), ("[1]", "holds a list, not an object")])
def test_a_broken_file_is_named(tmp_path: Path, text: str, named: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(WeightsError, match=named):
        read_architecture(tmp_path)


def test_a_missing_folder_or_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"has no config\.json"):
        read_architecture(tmp_path)
    with pytest.raises(WeightsError, match="nowhere does not exist"):
        read_architecture(tmp_path / "nowhere")


def test_config_fields_ask_old_releases_for_nothing_that_is_off(folders: dict[str, Path]) -> None:
    llama, qwen2, qwen3 = (read_architecture(folders[kind]).config_fields() for kind in ("llama3", "qwen2", "qwen3"))
    assert not {"add_qkv_bias", "qk_layernorm"} & llama.keys()
    assert qwen2["add_qkv_bias"] is True
    assert qwen3["qk_layernorm"] is True
    assert (qwen3["num_query_groups"], qwen3["kv_channels"], qwen3["ffn_hidden_size"]) == (2, 16, 48)
    assert llama["hidden_dropout"] == llama["attention_dropout"] == 0.0


def test_reading_loads_no_torch(tmp_path: Path) -> None:
    program = (
        "import sys, pathlib; from mcore_compat.weights import read_architecture;"
        f"read_architecture(pathlib.Path({str(write(tmp_path))!r}));"
        "sys.exit(bool({'torch', 'transformers', 'megatron'} & set(sys.modules)))"
    )
    root = Path(__file__).resolve().parents[2]
    assert subprocess.run([sys.executable, "-c", program], check=False, cwd=root).returncode == 0
