"""Names of earlier eras on the releases that lack them."""

from __future__ import annotations

import pytest

from mcore_compat.audit.eras import newest_of
from mcore_compat.errors import ConfigError
from tests.launch import run_ranks


@pytest.mark.releases("0.19.2")
def test_names_of_the_first_era(release: str) -> None:
    wanted = [
        "megatron.optimizer:DistributedOptimizer",
        "megatron.optimizer.grad_scaler:ConstantGradScaler",
        "megatron.global_vars:get_args",
        "megatron:get_args",
        "megatron.model:Float16Module",
        "megatron.core.transformer.custom_layers.transformer_engine:TENorm",
        "megatron.core.parallel_state:get_pipeline_model_parallel_split_rank",
        "megatron.arguments:parse_args",
        "megatron.optimizer.clip_grads:count_zeros_fp32",
        "megatron.optimizer.clip_grads:clip_grad_norm_fp32",
        "megatron.optimizer_param_scheduler:OptimizerParamScheduler",
        "megatron.nothing:at_all",
    ]
    (found,) = run_ranks("tests.legacy.programs:imports", "0.4", wanted, release=release)
    served = [found[name] for name in wanted[:4]]
    assert all(module.startswith("mcore_compat.legacy.") for module in served)
    assert found["megatron.model:Float16Module"] == "megatron.core.transformer.module"
    assert all(not found[name].partition(":")[0].endswith("Error") for name in wanted[5:7])
    for name in wanted[7:9]:  # what cannot be served says so, and what to write
        assert found[name].startswith("NotServed")
        assert "cannot be served" in found[name]
        assert "next: " in found[name]
    assert all(found[name].startswith("mcore_compat.legacy.") for name in wanted[9:11])
    assert found["megatron.nothing:at_all"].startswith("ModuleNotFoundError")


@pytest.mark.releases("0.19.2")
def test_names_of_a_later_era(release: str) -> None:
    wanted = [
        "megatron.core.process_groups_config:ModelCommProcessGroups",
        "megatron.core.parallel_state:get_data_modulo_expert_parallel_group",
        "megatron.optimizer:DistributedOptimizer",
    ]
    (found,) = run_ranks("tests.legacy.programs:imports", "0.12", wanted, release=release)
    assert [found[name].partition(":")[0] for name in wanted] == [
        "megatron.core.process_groups_config",
        "mcore_compat.legacy.parallel_state",
        "ModuleNotFoundError",  # not of that era
    ]


@pytest.mark.releases("0.12.3")
def test_training_names_without_a_checkout(release: str) -> None:
    wanted = [
        "megatron.training.utils:unwrap_model",
        "megatron.training:print_rank_0",
        "megatron.training.training:get_model",
        "megatron.training:pretrain",
    ]
    (found,) = run_ranks("tests.legacy.programs:imports", "0.6", wanted, release=release)
    homes = ["utils", "utils", "training"]
    assert [found[name] for name in wanted[:3]] == [f"mcore_compat.legacy.{home}" for home in homes]
    assert found[wanted[3]].startswith("NotServed")
    assert "next: mcore_compat.build_model" in found[wanted[3]]


@pytest.mark.releases("0.6.0")
def test_names_that_came_later(release: str) -> None:
    wanted = ["megatron.core.optimizer_param_scheduler:OptimizerParamScheduler", "megatron.core.extensions:x"]
    (found,) = run_ranks("tests.legacy.programs:imports", "0.12", wanted, release=release)
    assert found[wanted[0]] == "mcore_compat.legacy.scheduler"
    assert found[wanted[1]].startswith("ModuleNotFoundError")


@pytest.mark.releases("0.12.3")
def test_what_is_served_does_what_took_its_place(release: str) -> None:
    (found,) = run_ranks("tests.legacy.programs:served_again", release=release)
    ours, theirs = found["clip"]
    assert ours == pytest.approx(theirs)
    assert ours == pytest.approx([5.0, 0.6], rel=1e-5)
    expected = {"wrapped": "DistributedDataParallel", "sharded": True, "kind": True, "bare": "GPTModel"}
    assert found["model"] == expected
    for ours, theirs in found["rates"]:
        assert ours == pytest.approx(theirs)
        assert len(set(ours)) > 3


@pytest.mark.releases("0.14.0")
def test_a_fall_that_came_later(release: str) -> None:
    ((ours, theirs),) = run_ranks("tests.legacy.programs:falls", "minus_sqrt", release=release)
    assert ours == pytest.approx(theirs)
    assert len(set(ours)) > 3


@pytest.mark.releases("0.4.0", "0.12.3")
def test_a_wrapper_with_flat_flags_keeps_its_settings(release: str) -> None:
    """The optimizer of the stable API shards as the wrapper of the era does: ranks stay the same."""
    one, other = run_ranks("tests.legacy.programs:sharded", release=release, nproc=2)
    assert len(one) == 2
    for weights, others in zip(one, other, strict=True):
        assert weights == others


@pytest.mark.releases("0.12.3")
def test_an_optimizer_of_parameters_that_no_wrapper_holds(release: str) -> None:
    (error,) = run_ranks("tests.legacy.programs:without_a_wrapper", release=release)
    assert error.startswith("ConfigError: nothing is not what is expected in its place: a list of model chunks")


@pytest.mark.releases("0.12.3")
def test_a_rank_without_gradients(release: str) -> None:
    assert run_ranks("tests.legacy.programs:clipped_nothing", release=release) == [0.0]


@pytest.mark.releases("0.12.3")
def test_arguments_of_get_model(release: str) -> None:
    (found,) = run_ranks("tests.legacy.programs:arguments", release=release)
    assert found["config"] == {
        "use_distributed_optimizer": True,
        "overlap_grad_reduce": True,
        "overlap_param_gather": True,
        "grad_reduce_in_fp32": False,
        "check_for_nan_in_grad": True,
        "bucket_size": 100,
        "average_in_collective": True,
    }
    assert found["bf16"].startswith("ConfigError: the arguments say bf16=True, the model's config bf16=False")
    assert found["use_custom_fsdp"].startswith("FeatureUnavailable: get_model cannot serve use_custom_fsdp")


@pytest.mark.releases("0.14.0", "0.19.2")
def test_two_collections_of_groups(release: str) -> None:
    (norms,) = run_ranks("tests.legacy.programs:collections_of_groups", release=release)
    assert norms[0] > 0.0
    assert norms[0] != norms[1]


@pytest.mark.releases("0.19.2")
def test_warns_once_with_the_stable_name(release: str) -> None:
    (warned,) = run_ranks("tests.legacy.programs:warned", release=release)
    assert len(warned) == 2
    assert all("; instead: " in message for message in warned)


@pytest.mark.releases("0.4.0", "0.19.2")
def test_uninstall_takes_everything_back(release: str) -> None:
    (found,) = run_ranks("tests.legacy.programs:taken_back", release=release)
    assert all(found.values()), found


@pytest.mark.releases("0.4.0", "0.19.2")
def test_other_names_are_the_very_same_objects(release: str) -> None:
    """A name that is not redirected costs nothing after its import: no wrapper, and no hook asked before the end."""
    (found,) = run_ranks("tests.legacy.programs:untouched", release=release)
    redirected = {name.rpartition(".")[2] for name in found["other"]}
    assert redirected <= {
        "get_model_config",
        "get_forward_backward_func",
        "get_megatron_optimizer",
        "initialize_model_parallel",
        "is_pipeline_first_stage",
        "is_pipeline_last_stage",
        "is_rank_in_embedding_group",
        "vocab_parallel_cross_entropy",
    }
    assert found["same"] > 1000
    assert found["hooks"]
    assert found["answers"] == [None, None, None]


@pytest.mark.parametrize(("era", "newest"), [("0.4", "0.4.0"), ("0.12", "0.12.3"), ("0.13.0", "0.13.0")])
def test_an_era_is_a_release(era: str, newest: str) -> None:
    assert newest_of(era) == newest


@pytest.mark.parametrize("era", ["0.3", "new", ""])
def test_an_unknown_era_is_refused(era: str) -> None:
    with pytest.raises(ConfigError, match="no release"):
        newest_of(era)
