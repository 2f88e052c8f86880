"""What a release does where a patch repairs it; each probe returns something that JSON holds.

Only Megatron's own code runs. The runtime's repairs are off, so that the patches are all that helps.
"""

from __future__ import annotations

import argparse
import importlib
import io
import queue
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch

import mcore_compat
from tests.patching.parts import (
    all_arguments,
    core,
    distributed_optimizer,
    global_arguments,
    layer,
    lies_in_its_bucket,
    mark,
    psutil,
    stage,
    tiny_config,
    wrapped,
    wrapped_flat,
)


def model_config_attribute() -> object:
    """Which of two configurations a wrapped model is asked for."""
    from megatron.core.utils import get_model_config

    model = SimpleNamespace(config="a framework's", megatron_config="Megatron's")
    return get_model_config(SimpleNamespace(module=model))


def expert_grad_hook() -> object:
    """A backward pass over a parameter of an expert, gradient reduction overlapped."""
    expert = torch.nn.Linear(2, 2, bias=False)
    mark(expert.weight, "allreduce", False)
    wrapped_flat(expert, overlap=True)(torch.ones(1, 2)).sum().backward()
    return "done"


def ddp_broadcast_params() -> object:
    """Weights from the first data-parallel rank to all."""
    wrapped_flat(torch.nn.Linear(2, 2)).broadcast_params()
    return "done"


def ddp_scale_context_parallel() -> object:
    """What gradients are multiplied by on 1 data-parallel × 2 context-parallel ranks."""
    return wrapped(torch.nn.Linear(2, 2)).buffers[0].gradient_scaling_factor


def tied_embedding_start() -> object:
    """Whether a tied embedding lies in the bucket that is said to hold it."""
    first, tied = torch.nn.Linear(1, 64, bias=False), torch.nn.Linear(1, 64, bias=False)
    mark(tied.weight, "shared_embedding", True)
    # The buffer is filled from the last parameter to the first.
    return lies_in_its_bucket(wrapped(torch.nn.Sequential(tied, first), distributed=True), tied.weight)


def tied_embedding_of_two_ranks() -> object:
    """The same in 0.6, where only an odd number of elements on two ranks needs padding."""
    first, tied = torch.nn.Linear(1, 3, bias=False), torch.nn.Linear(1, 4, bias=False)
    mark(tied.weight, "shared_embedding", True)
    return lies_in_its_bucket(wrapped_flat(torch.nn.Sequential(tied, first), distributed=True), tied.weight)


def bucket_param_index() -> object:
    """Whether a bucket's own places of its parameters are those of the buffer."""
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 5))
    buffer: Any = wrapped(model, distributed=True).buffers[0]
    places = {parameter: place[:2] for parameter, place in buffer.param_index_map.items()}
    return all(
        tuple(place + bucket.offset for place in bucket.param_to_index[parameter]) == places[parameter]
        for bucket in buffer.buckets
        for parameter in bucket.params_list
    )


def grad_sync_stream() -> object:
    """Gradient reduction where asking for a stream fails, as it does without CUDA."""
    wrapper = wrapped(torch.nn.Linear(2, 2))
    with mock.patch("torch.cuda.current_stream", side_effect=RuntimeError("no CUDA")):
        wrapper.finish_grad_sync()
    return "done"


def frozen_layernorm_grads() -> object:
    """Gradient synchronisation of two tensor-parallel ranks over a frozen layer norm."""
    state, finalize = core("parallel_state"), core("distributed.finalize_model_grads")
    model = torch.nn.Module()
    model.q_layernorm = torch.nn.Parameter(torch.ones(2), requires_grad=False)
    model.k_layernorm = torch.nn.Parameter(torch.ones(2))
    mark(model.k_layernorm, "main_grad", torch.ones(2))
    for parameter in model.parameters():
        mark(parameter, "sequence_parallel", True)
    state.set_tensor_model_parallel_world_size(2)
    try:
        finalize._allreduce_layernorm_grads([model], SimpleNamespace(sequence_parallel=True, qk_layernorm=True))
    finally:
        state.set_tensor_model_parallel_world_size(None)
    return "done"


def lr_mult_shadowed() -> object:
    """How many of two parameters are scaled, when unscaled ones come before each of them."""
    model = torch.nn.ParameterDict({name: torch.ones(2, 2) for name in ("a", "b_scaled", "c", "d_scaled")})
    groups = core("optimizer")._get_param_groups([model], None, lambda name, _: "scaled" in name, 3.0, False)
    return sum(len(group["params"]) for group in groups if group["lr_mult"] == 3.0)


def fp32_optimizer_state() -> object:
    """Building the optimizer of plain fp32 training."""
    optimizer = core("optimizer")
    inner = torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], lr=1.0)
    return type(optimizer.FP32Optimizer(inner, optimizer.OptimizerConfig(), lambda _: None)).__name__


def fp8_quantize_nothing() -> object:
    """Quantizing no parameter."""
    return core("fp8_utils").quantize_param_shard([], [], [], None)


def distributed_optimizer_torch() -> object:
    """Building the distributed optimizer without apex and Transformer Engine."""
    module = core("optimizer.distrib_optimizer")
    module.HAVE_APEX_OR_TE = False
    return type(distributed_optimizer().inner).__name__


def optimizer_state_before_step() -> object:
    """The state of a distributed optimizer that has not stepped."""
    return sorted(distributed_optimizer().inner.state_dict())


def reported_loss_kept() -> object:
    """The loss that a schedule of two microbatches reports, where each reports 1."""
    from megatron.core.enums import ModelType

    model = torch.nn.Linear(1, 1)
    model.config = mcore_compat.transformer_config(num_layers=1, hidden_size=8, num_attention_heads=1)
    model.model_type = ModelType.encoder_or_decoder
    model.set_input_tensor = lambda _: None  # type: ignore[assignment]

    def reported(output: torch.Tensor) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        loss = output.sum() * 0 + 1
        return loss, {"loss": loss.detach()}

    run = core("pipeline_parallel").get_forward_backward_func()
    reports = run(
        forward_step_func=lambda data, part: (part(next(data)), reported),
        data_iterator=iter([torch.ones(1, 1), torch.ones(1, 1)]),
        model=[model],
        num_microbatches=2,
        seq_length=1,
        micro_batch_size=1,
        forward_only=True,
    )
    return [float(report["loss"]) for report in reports]


def moe_loss_scale_device() -> object:
    """The forward step of an MoE model on the first of two stages."""
    from megatron.core.enums import ModelType

    state = core("parallel_state")
    model = torch.nn.Linear(1, 1)
    model.model_type = ModelType.encoder_or_decoder
    model.set_input_tensor = lambda _: None  # type: ignore[assignment]
    config = SimpleNamespace(timers=None, enable_autocast=False, num_moe_experts=2, grad_scale_func=lambda scale: scale)
    with stage(state, 0):
        step = core("pipeline_parallel.schedules").forward_step
        step(lambda data, part: (part(torch.ones(1, 1)), None), None, model, 1, None, [], config)
    return "done"


def cross_entropy_logits_kept() -> object:
    """Whether fp32 logits are the same after their loss was taken."""
    logits = torch.randn(2, 1, 8, generator=torch.Generator().manual_seed(1))
    before = logits.clone()
    core("tensor_parallel").vocab_parallel_cross_entropy(logits, torch.zeros(2, 1, dtype=torch.long))
    return torch.equal(logits, before)


def fused_cross_entropy_dtype() -> object:
    """Whether the fused loss of fp32 logits has gradients that bfloat16 cannot hold."""
    logits = torch.randn(2, 1, 8, generator=torch.Generator().manual_seed(1)).requires_grad_()
    group = core("parallel_state").get_tensor_model_parallel_group()
    fused = core("fusions.fused_cross_entropy").fused_vocab_parallel_cross_entropy
    arguments = (group,) if "tp_group" in fused.__code__.co_varnames else ()
    fused(logits, torch.zeros(2, 1, dtype=torch.long), *arguments).sum().backward()
    assert logits.grad is not None
    return not torch.equal(logits.grad, logits.grad.bfloat16().float())


def attention_layer_number() -> object:
    """The number that attention has in the first layer of the second of two stages."""
    with stage(core("parallel_state"), 1):
        return layer(num_layers=2, pipeline_model_parallel_size=2).self_attention.layer_number


def cp_comm_type_index() -> object:
    """Building the last layer with a list of kinds of context-parallel communication."""
    return type(layer(num_layers=1, context_parallel_size=2, cp_comm_type=["p2p"])).__name__


def softmax_offset_init() -> object:
    """Whether a learnable softmax offset is what the config's initialisation makes it."""
    attention = core("transformer.dot_product_attention").DotProductAttention
    kinds = core("transformer.enums")
    config = tiny_config(softmax_type="learnable")
    config.init_method = lambda tensor: torch.nn.init.constant_(tensor, 3.0)
    made = attention(config, 1, kinds.AttnMaskType.causal, "self")
    return bool((made.softmax_offset == 3.0).all())


def rng_and_fp8_context() -> object:
    """Whether dropout in a sequence-parallel block leaves the default random generator alone."""
    config = tiny_config(hidden_dropout=0.5, num_layers=1, use_cpu_initialization=True, bias_dropout_fusion=False)
    (model,) = mcore_compat.gpt_model(config, vocab_size=8, max_sequence_length=4)
    # After the layers were built: only the block is to believe it.
    model.decoder.config.sequence_parallel = True
    before = torch.get_rng_state()
    model.decoder(torch.ones(4, 1, 8), torch.zeros(1, 1, 4, 4, dtype=torch.bool))
    return torch.equal(torch.get_rng_state(), before)


def moe_local_spec() -> object:
    """The local layer specification of an MoE model."""
    specs = core("models.gpt.gpt_layer_specs")
    experts = specs.get_gpt_layer_local_spec(num_experts=2).submodules.mlp.submodules.experts
    return experts.linear_fc1.__name__


def moe_router_gemm_name() -> object:
    """The routing scores of two tokens for three experts."""
    gating = core("transformer.moe.moe_utils").router_gating_linear
    return list(gating(torch.ones(2, 4), torch.ones(3, 4), None, torch.float32).shape)


def inference_spec_field() -> object:
    """Specifications of inference-optimized layers of an MoE model; making the layers needs Transformer Engine."""
    specs = core("models.gpt.gpt_layer_specs")
    config = tiny_config(num_moe_experts=2)
    config.transformer_impl = "inference_optimized"
    with mock.patch.object(specs, "get_gpt_layer_with_inference_spec"):
        return len(specs.get_gpt_decoder_layer_specs(config, use_transformer_engine=False))


def mtp_recompute_padding_mask() -> object:
    """A training step of a model with multi-token prediction and full recomputation."""
    specs = core("models.gpt.gpt_layer_specs")
    config = tiny_config(
        mtp_num_layers=1,
        recompute_granularity="full",
        recompute_method="uniform",
        recompute_num_layers=1,
        num_layers=1,
        use_cpu_initialization=True,
        bias_dropout_fusion=False,
    )
    prediction = specs.get_gpt_mtp_block_spec(config, specs.get_gpt_layer_local_spec(), use_transformer_engine=False)
    (model,) = mcore_compat.gpt_model(config, vocab_size=8, max_sequence_length=4, mtp_block_spec=prediction)
    tokens = torch.arange(4)[None]
    causal = torch.ones(4, 4, dtype=torch.bool).triu(1)[None, None]
    model(tokens, tokens, causal, labels=tokens, loss_mask=torch.ones(1, 4)).sum().backward()
    return "done"


def checkpoint_pickles() -> object:
    """Loading the common part of a checkpoint that holds parsed arguments."""
    with tempfile.TemporaryDirectory() as name:
        torch.save({"args": argparse.Namespace(a=1)}, Path(name) / "common.pt")
        return sorted(core("dist_checkpointing.serialization").load_common_state_dict(Path(name)))


def async_writer_format() -> object:
    """What the writing process puts into its queue of results."""
    from torch.distributed.checkpoint import filesystem
    from torch.distributed.checkpoint.metadata import MetadataIndex
    from torch.distributed.checkpoint.planner import WriteItem, WriteItemType

    results: queue.Queue[Any] = queue.Queue()
    waiting: queue.Queue[int] = queue.Queue()
    waiting.put(0)
    item = WriteItem(index=MetadataIndex("state"), type=WriteItemType.BYTE_IO)
    with mock.patch.dict(sys.modules, psutil=psutil()), tempfile.TemporaryDirectory() as name:
        writer = core("dist_checkpointing.strategies.filesystem_async").FileSystemWriterAsync
        bucket: Any = (Path(name) / "file", "file", ([(item, io.BytesIO(b"state"))], []))
        writer.write_preloaded_data([filesystem._StorageWriterTransforms()], 0, bucket, results, waiting, False)
    return type(results.get()[1]).__name__


def numpy_product() -> object:
    """Coordinates of a flattened part of a tensor."""
    mapping = core("dist_checkpointing.mapping")
    shape = (2, 2)
    part = mapping.ShardedTensor("key", None, torch.float32, shape, shape, (0, 0), (1, 1), flattened_range=slice(0, 2))
    return [axis.tolist() for axis in part.local_coordinates()]


def gloo_groups_destroyed() -> object:
    """What is left of the gloo groups once the layout is destroyed."""
    state = core("parallel_state")
    state.destroy_model_parallel()
    return sum(value is not None for name, value in vars(state).items() if name.endswith("_GLOO"))


def pkg_resources() -> object:
    """Importing what compares versions."""
    return hasattr(core("tensor_parallel.random"), "get_cuda_rng_tracker")


def optimizer_without_args() -> object:
    """Whether a step of the repository's optimizer reaches the model, parameter gathering overlapped."""
    model = torch.nn.Linear(2, 2)
    before = model.weight.detach().clone()
    wrapped = wrapped_flat(model, distributed=True)
    make = importlib.import_module("megatron.optimizer").get_megatron_optimizer
    optimizer = make([wrapped], args=all_arguments(overlap_param_gather=True))
    wrapped(torch.ones(1, 2)).sum().backward()
    wrapped.finish_grad_sync()
    optimizer.step()
    optimizer.zero_grad()
    wrapped(torch.ones(1, 2))
    return not torch.equal(model.weight, before)


def distributed_optimizer_any() -> object:
    """Building the repository's distributed optimizer around SGD."""
    with global_arguments(optimizer="sgd") as make:
        return type(make([wrapped_flat(torch.nn.Linear(2, 2), distributed=True)])).__name__


def param_gather_hook() -> object:
    """A forward pass of a second model, while the first one's parameters are gathered in the background."""
    with global_arguments(overlap_param_gather=True) as make:
        make([wrapped_flat(torch.nn.Linear(2, 2), distributed=True)])
    return list(torch.nn.Linear(2, 3)(torch.ones(1, 2)).shape)
