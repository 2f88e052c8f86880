"""The audit on published frameworks, against lists made by hand."""

from __future__ import annotations

import shutil
from collections import Counter
from io import BytesIO
from pathlib import Path
from tokenize import COMMENT, tokenize

import pytest

from mcore_compat.audit import Finding, audit
from mcore_compat.audit.fix import fix_files
from tests.clients.wheels import client

# Every line of verl 0.2 that does not work on 0.6.0, read by hand.
BROKEN = {
    "models/llama/megatron/checkpoint_utils/llama_loader.py": {56},
    "models/llama/megatron/checkpoint_utils/llama_saver.py": {17, 18, 19, 25, 58, 91},
    "third_party/vllm/vllm_v_0_3_1/parallel_state.py": {30},
    "utils/megatron/optimizer.py": {18, 19, 20, 21, 82, 86, 91},
    "utils/megatron_utils.py": {104, 115, 219, 235, 250},
    "utils/memory_buffer.py": {110},
    "workers/actor/megatron_actor.py": {29, 309, 321, 353, 359},
    "workers/critic/megatron_critic.py": {36, 183, 195, 216, 220},
    "workers/reward_model/megatron/reward_model.py": {236, 248},
}
# What has to be found whatever else is.
AT_LEAST = {
    "megatron.optimizer.",
    "megatron.timers.",
    "DistributedDataParallel(",
    "zero_grad_buffer(zero_buffer=)",
    "step(...)",
    "forward_backward_func(hidden_size=, input_shapes=)",
    "param.data =",
}


def lines(findings: tuple[Finding, ...], root: Path) -> set[tuple[str, int]]:
    return {(str(Path(finding.path).relative_to(root)), finding.line) for finding in findings}


def test_verl_2_on_the_release_that_broke_it() -> None:
    root = client("verl", "0.2") / "verl"
    findings = audit(root, ["0.6.0"]).findings
    found = lines(findings, root)
    broken = {(path, line) for path, numbers in BROKEN.items() for line in numbers}
    recall = len(found & broken) / len(broken)
    precision = len(found & broken) / len(found)
    print(f"recall {recall:.2f}, precision {precision:.2f} of {len(found)} lines")
    assert recall == 1.0, sorted(broken - found)
    assert precision == 1.0, sorted(found - broken)
    assert all(any(finding.use.startswith(use) for finding in findings) for use in AT_LEAST)


def test_no_comment_of_verl_2_is_lost(tmp_path: Path) -> None:
    root = tmp_path / "actor"
    shutil.copytree(client("verl", "0.2") / "verl" / "workers" / "actor", root)
    before = comments(root)
    assert fix_files(root)
    assert comments(root) == before


def comments(root: Path) -> dict[Path, Counter[str]]:
    return {path: _comments(path.read_bytes()) for path in root.rglob("*.py")}


def _comments(source: bytes) -> Counter[str]:
    return Counter(token.string for token in tokenize(BytesIO(source).readline) if token.type == COMMENT)


def test_verl_2_on_the_release_it_was_written_for() -> None:
    root = client("verl", "0.2") / "verl"
    never = {"forward_backward_func(", "megatron.distributed.new_group", "megatron.model.DistributedDataParallel"}
    for finding in audit(root, ["0.4.0"]).findings:  # names of a patched Megatron, and of one before
        assert any(finding.use.startswith(use) for use in never | {"DistributedOptimizer("}), finding


@pytest.mark.parametrize(
    ("name", "version", "target", "broken"),
    [
        (
            "verl",
            "0.7.1",
            "0.19.2",
            {
                "megatron.core.dist_checkpointing.strategies.base.async_calls",
                "megatron.core.enums.ModelType.encoder_and_decoder",
                "megatron.core.parallel_state.get_pipeline_model_parallel_split_rank",
                "megatron.core.parallel_state.is_pipeline_stage_before_split",
                "megatron.core.parallel_state.is_pipeline_stage_after_split",
            },
        ),
        (
            "verl",
            "0.7.1",
            "0.12.3",
            {"megatron.core.models.common.model_chunk_schedule_plan.TransformerModelChunkSchedulePlan"},
        ),
        (
            "mbridge",
            "0.15.1",
            "0.19.2",
            {
                "megatron.core.distributed.custom_fsdp.FullyShardedDataParallel",
                "megatron.core.parallel_state.is_inside_decoder",
                "megatron.core.parallel_state.is_inside_encoder",
                "megatron.core.inference.model_inference_wrappers.inference_wrapper_config.InferenceWrapperConfig",
            },
        ),
        ("mbridge", "0.15.1", "0.12.3", set()),
        (
            "nemo_aligner",
            "0.7.0",
            "0.7.0",
            {
                f"megatron.core.num_microbatches_calculator.{name}"
                for name in (
                    "get_current_global_batch_size",
                    "get_micro_batch_size",
                    "get_num_microbatches",
                    "reconfigure_num_microbatches_calculator",
                )
            },
        ),
        ("nemo_aligner", "0.7.0", "0.9.0", set()),
    ],
)
def test_known_breakages_of_others(name: str, version: str, target: str, broken: set[str]) -> None:
    findings = audit(client(name, version) / name, [target]).findings
    names = {finding.use for finding in findings if finding.use.startswith("megatron.")}
    assert names == broken
