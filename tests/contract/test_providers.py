"""Constructors and settings that move between releases (C12)."""

from __future__ import annotations

import pytest
from packaging.version import Version

from tests.contract.conftest import Found

FIRST_RELEASE = {
    "average_in_collective": "0.8.0",
    "check_for_nan_in_grad": "0.6.0",
    "add_qkv_bias": "0.5.0",
    "qk_layernorm": "0.6.0",
    "softmax_scale": "0.11.0",
    "glu_linear_offset": "0.15.0",
    "rope_scaling": "0.10.0",
    "overlap_param_gather": "0.6.0",
    "order": "0.7.0",
    "create_gloo_process_groups": "0.12.0",
}
TOLD = {"stages": [True, True], "virtual": [True, True, None], "anything": [True, True, None]}


@pytest.mark.parametrize("provider", TOLD)
def test_a_provider_builds_and_steps(found: Found, release: str, provider: str) -> None:
    for rank in found(release, 2, "providers.one_step"):
        model = rank[provider]
        assert model["told"] == TOLD[provider]
        assert model["buckets"] > 1
        assert model["still"] == ["output_layer.weight"]
        assert model["error"] < 1e-6 < 0.01 * model["decay"]


def test_a_provider_that_requires_what_nobody_passes(found: Found, release: str) -> None:
    for rank in found(release, 2, "providers.one_step"):
        assert rank["flavour"].startswith("ConfigError")
        assert "'flavour'" in rank["flavour"]


def test_a_provider_is_told_its_stage(found: Found, release: str) -> None:
    first, last = found(release, 2, "providers.flags")
    assert first["pp"] == [[True, False, None]]
    assert last["pp"] == [[False, True, None]]
    if Version(release) >= Version("0.8.0"):
        assert first["vpp"] == [[True, False, 0], [False, False, 1]]
        assert last["vpp"] == [[False, False, 0], [False, True, 1]]


def test_gradients_are_reduced_in_the_type_asked_for(found: Found, release: str) -> None:
    for rank in found(release, 2, "layouts.reduction_types"):
        assert rank == {"True": "torch.float32", "False": "torch.bfloat16"}


@pytest.mark.parametrize("setting", FIRST_RELEASE)
def test_a_setting_is_honoured_or_refused_by_name(found: Found, release: str, setting: str) -> None:
    (errors,) = found(release, 1, "single.settings_of_later_releases")
    first = FIRST_RELEASE[setting]
    if Version(release) >= Version(first):
        assert errors[setting] == ""
    else:
        assert errors[setting].startswith("FeatureUnavailable")
        assert setting in errors[setting]
        assert first in errors[setting]


REFUSALS = {
    "field": "did you mean 'hidden_size'",
    "second layout": "already initialized",
    "gather alone": "overlap_param_gather needs use_distributed_optimizer and overlap_grad_reduce",
    "settings for a config": "wrap_data_parallel(chunks, settings=",
    "other settings": "the chunks were wrapped with DataParallelSettings(",
    "other precision": "embed.weight is bf16, but the optimizer is to be fp32",
    "no groups": "call mcore_compat.init_parallel",
    "too many ranks": "1 ranks cannot be split into tp 2",
}


@pytest.mark.parametrize("mistake", REFUSALS)
def test_mistakes_are_library_errors(found: Found, release: str, mistake: str) -> None:
    (errors,) = found(release, 1, "single.refusals")
    assert errors[mistake].startswith("ConfigError")
    assert REFUSALS[mistake] in errors[mistake]


def test_the_optimizer_of_a_package_without_one_is_named(found: Found, release: str) -> None:
    (explained,) = found(release, 1, "single.explanation")
    own = Version(release) < Version("0.6.0")
    assert (explained["variant"] == "own") is own
    assert ("optimizer: own" in explained["line"]) is own
