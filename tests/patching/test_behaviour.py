"""Each patch that repairs what a release does: without it the release fails, with it the release does it right."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from mcore_compat import patching
from tests.launch import run_ranks
from tests.patching.megatrons import checkout_of, copy_of
from tests.releases import DEFAULT_RELEASES

# Release -> what a probe needs around it -> probe -> what it finds without patches, and with them.
Cases = Mapping[str, Mapping[str, tuple[object, object]]]
CASES: Mapping[str, Cases] = {
    "0.5.0": {
        "one": {
            "model_config_attribute": ("a framework's", "Megatron's"),
            "expert_grad_hook": ("KeyError", "done"),
            "moe_loss_scale_device": ("UnboundLocalError", "done"),
            "frozen_layernorm_grads": ("AttributeError", "done"),
            "attention_layer_number": (1, 2),
            "rng_and_fp8_context": (False, True),
            "checkpoint_pickles": ("UnpicklingError", ["args"]),
            "numpy_product": ("AttributeError", [[0, 0], [0, 1]]),
            "gloo_groups_destroyed": (2, 0),
        }
    },
    "0.6.0": {
        "one": {
            "ddp_broadcast_params": ("AttributeError", "done"),
            "lr_mult_shadowed": (0, 2),
            "fp32_optimizer_state": ("TypeError", "FP32Optimizer"),
        },
        "dp 2": {"tied_embedding_of_two_ranks": ("AssertionError", True)},
    },
    "0.8.0": {
        "one": {
            "tied_embedding_start": (False, True),
            "frozen_layernorm_grads": ("AttributeError", "done"),
            "distributed_optimizer_torch": ("ConfigError", "DistributedOptimizer"),
        },
        "cp 2": {"ddp_scale_context_parallel": (1.0, 0.5)},
        "bare": {"pkg_resources": ("ModuleNotFoundError", True)},
    },
    "0.10.0": {"one": {"moe_local_spec": ("NameError", "ColumnParallelLinear")}},
    "0.12.3": {
        "one": {
            "fp8_quantize_nothing": ("RuntimeError", None),
            "tied_embedding_start": (False, True),
            "optimizer_state_before_step": ("AssertionError", ["optimizer"]),
            "reported_loss_kept": ([0.5, 0.5], [1.0, 1.0]),
            "attention_layer_number": (1, 2),
            "cp_comm_type_index": ("IndexError", "TransformerLayer"),
            "cross_entropy_logits_kept": (False, True),
            "fused_cross_entropy_dtype": (False, True),
            "async_writer_format": ("TypeError", "list"),
            "numpy_product": ("AttributeError", [[0, 0], [0, 1]]),
        }
    },
    "0.15.3": {
        "one": {
            "softmax_offset_init": (False, True),
            "bucket_param_index": (False, True),
            "moe_router_gemm_name": ("NameError", [2, 3]),
        }
    },
    "0.18.2": {
        "one": {
            "mtp_recompute_padding_mask": ("TypeError", "done"),
            "inference_spec_field": ("AttributeError", 1),
        }
    },
    "0.19.2": {
        "one": {
            "model_config_attribute": ("a framework's", "Megatron's"),
            "grad_sync_stream": ("RuntimeError", "done"),
            "reported_loss_kept": ([0.5, 0.5], [1.0, 1.0]),
            "cross_entropy_logits_kept": (False, True),
            "fused_cross_entropy_dtype": (False, True),
            "optimizer_state_before_step": ("AssertionError", ["optimizer"]),
        }
    },
}


# The same for the repository, whose optimizer of 0.4 and 0.5 is in no wheel.
OF_THE_REPOSITORY: Cases = {
    "one": {
        "optimizer_without_args": ("TypeError", True),
        "distributed_optimizer_any": ("AssertionError", "DistributedOptimizer"),
        "param_gather_hook": ("AssertionError", [1, 3]),
    }
}


@pytest.mark.parametrize("version", CASES)
def test_a_patch_repairs_what_it_says(version: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if version not in DEFAULT_RELEASES and not request.config.getoption("--all-releases"):
        pytest.skip("not one of the releases that tests run on by default; --all-releases runs it")
    _compare(copy_of(version, tmp_path / "plain"), copy_of(version, tmp_path / "patched"), CASES[version])


@pytest.mark.parametrize("version", ["0.4.0", "0.5.0"])
def test_a_patch_repairs_the_repository(version: str, tmp_path: Path) -> None:
    tag = f"core_v{version}"
    _compare(checkout_of(tag, tmp_path / "plain"), checkout_of(tag, tmp_path / "patched"), OF_THE_REPOSITORY)


def _compare(plain: Path, patched: Path, cases: Cases) -> None:
    assert patching.apply(patched).written
    wanted = {world: list(probes) for world, probes in cases.items()}
    # Compiling a kernel costs more than all the rest.
    environment = {"TORCHDYNAMO_DISABLE": "1"}
    program = "tests.patching.behaviour:compare"
    (found,) = run_ranks(program, [str(plain), str(patched)], wanted, release=None, env=environment)
    expected = {name: pair for probes in cases.values() for name, pair in probes.items()}
    assert found == [{name: pair[side] for name, pair in expected.items()} for side in (0, 1)]
