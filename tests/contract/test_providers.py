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


TRAPS = {
    "a module for chunks": "ConfigError: GPTModel is not what is expected in its place: a list of model chunks",
    "no chunks": "ConfigError: nothing is not what is expected",
    "wrapped twice": "ConfigError: DistributedDataParallel is already wrapped",
    "a dict for a config": "ConfigError: dict is not what is expected",
    "swapped": "ConfigError: list is not what is expected in its place: OptimizerSettings",
    "adamw": "ConfigError: optimizer must be adam or sgd, found 'adamw'",
    "a text for a rate": "ConfigError: OptimizerSettings.lr must be a number, found '1e-6'",
    "no clipping": "clip_grad=0 does not clip",
    "bf16 field": 'leave it out: precision="bf16"',
    "no fields": "give num_layers, hidden_size, num_attention_heads",
    "head": "ConfigError: head must be one of lm, value, found 'critic'",
    "positions": "ConfigError: position_embedding_type must be one of",
    "spec": "ConfigError: spec must be one of auto, local, te",
    "a module for a provider": "ConfigError: Linear is not what is expected",
    "a provider of lists": "ConfigError: the model provider returned list",
    "device": "ConfigError: device must be one of auto, cpu, cuda, found 'cuda:0'",
    "texts for sizes": "ConfigError: parallel sizes must be integers",
    "upstream's names for sizes": "ConfigError: Megatron refused ParallelLayout(",
    "bare chunks": "ConfigError: GPTModel is not wrapped",
    "upstream's optimizer": "the Optimizer of build_optimizer",
    "another model's optimizer": "ConfigError: the optimizer was built for other chunks",
    "one batch": "ConfigError: dict is not what is expected in its place: a list of microbatches",
    "an iterator": "is not what is expected in its place: a list of microbatches",
    "no tokens": "ConfigError: a microbatch maps 'tokens' to a tensor [R, T], found ['input_ids']",
    "one row": "ConfigError: tokens must be [R, T], found shape (16,)",
    "a tensor for a term": "ConfigError: the loss function returned Tensor, expected LossTerm",
    "a number for a count": "ConfigError: LossTerm.count must be a scalar tensor, found int",
    "a loss per row": "ConfigError: LossTerm.sum must be a scalar tensor, found shape (2,)",
    "a plain metric": "ConfigError: LossTerm.metrics['kl'] (sum, count) must be a scalar tensor",
    "metrics of some": "ConfigError: only some microbatches have the metrics 0, 8",
    "detached": "ConfigError: LossTerm.sum has no gradient",
    "count of nan": "NumericalError: the loss of this step counts no tokens",
    "loss of nan": "NumericalError: the loss of this step is nan",
    "not cleared": "ConfigError: the chunks still hold the gradients of an earlier forward_backward",
    "cleared by half": "(optimizer.zero_grad() is not enough)",
    "offloaded step": "ConfigError: a step needs params, grads, optimizer, but offloaded: params, grads, optimizer",
    "offloaded zero_grad": "ConfigError: zero_grad needs grads",
    "offloaded pass": "ConfigError: forward_backward needs params, grads, but offloaded: params, grads",
    "offloaded weights": "ConfigError: iter_weights needs params",
    "offloaded checkpoint": "ConfigError: the checkpoint of actor needs params",
    "parts for an optimizer": "ConfigError: list is not what is expected in its place: the optimizer",
    "buffers of bare chunks": "ConfigError: GPTModel is not wrapped",
    "names": "ConfigError: expected names of hf, megatron and bucket_bytes > 0, found 'mcore'",
    "bucket": "ConfigError: expected names of hf, megatron and bucket_bytes > 0",
    "a folder for an architecture": "ConfigError: str is not what is expected in its place: an Architecture",
    "no engine": "ConfigError: object has no load_weights",
    "an engine that stops": "ConfigError: Lazy.load_weights left 26 tensors",
    "guard of another model": "ConfigError: the optimizer updates no parameter of these chunks",
    "bare state": "ConfigError: expected models by role",
    "step": "ConfigError: step is 1.5; expected a whole number",
}


@pytest.mark.parametrize("trap", TRAPS)
def test_mixed_up_calls_are_answered_where_they_are_made(found: Found, release: str, trap: str) -> None:
    (errors,) = found(release, 1, "traps.one_process")
    assert TRAPS[trap] in errors[trap]


def test_cleared_gradients_and_metrics_of_any_name_are_fine(found: Found, release: str) -> None:
    (errors,) = found(release, 1, "traps.one_process")
    assert errors["cleared by upstream"] == errors["a metric named loss"] == errors["reloaded"] == ""


def test_ranks_with_other_microbatches_are_refused_on_all_of_them(found: Found, release: str) -> None:
    for rank in found(release, 2, "traps.two_ranks"):
        for mistake in ("numbers", "shapes"):
            assert rank[mistake].startswith("ConfigError: data-parallel ranks gave other numbers or shapes")
        assert rank["equal"] == ""


def test_the_optimizer_of_a_package_without_one_is_named(found: Found, release: str) -> None:
    (explained,) = found(release, 1, "single.explanation")
    own = Version(release) < Version("0.6.0")
    assert (explained["variant"] == "own") is own
    assert ("optimizer: own" in explained["line"]) is own
