"""Programs that drive plain upstream calls after ``prepare("cpu")``; run in ranks of their own."""

from __future__ import annotations

import importlib.util
import os
import warnings
from dataclasses import dataclass, fields
from inspect import signature
from typing import Any

from mcore_compat.runtime import prepare

STEPS = 2
MICROBATCHES = 2


@dataclass(frozen=True)
class Case:
    """One model and optimizer; layouts come from the number of ranks."""

    tp: int = 1
    pp: int = 1
    llama: bool = False
    moe: bool = False
    bf16: bool = False
    distributed: bool = False
    cpu_init: bool = True
    dropout: float = 0.0
    average: bool = False


def train(*cases: dict[str, Any]) -> list[dict[str, Any]]:
    """Train each case from scratch: losses (last stage) and gradient norms of each step, as exact text."""
    warnings.simplefilter("ignore")
    prepare("cpu")
    import torch

    # As a program for GPUs says it.
    torch.distributed.init_process_group("nccl", device_id=torch.device("cuda", torch.cuda.current_device()))
    results = [_train(Case(**case)) for case in cases]
    torch.distributed.destroy_process_group()
    return results


def _train(case: Case) -> dict[str, Any]:
    import torch
    from megatron.core import parallel_state
    from megatron.core.distributed import finalize_model_grads

    _forget_attention_choice()
    parallel_state.initialize_model_parallel(tensor_model_parallel_size=case.tp, pipeline_model_parallel_size=case.pp)
    model = _wrap(case, _model(case))
    optimizer = _optimizer(case, model)
    generator = torch.Generator().manual_seed(7 + parallel_state.get_data_parallel_rank())
    losses, norms = [], []
    for _ in range(STEPS):
        _zero(model, optimizer, case)
        losses += _forward_backward(model, generator)
        finalize_model_grads([model])
        norms.append(_step(model, optimizer))
    parallel_state.destroy_model_parallel()
    return {"losses": [value.hex() for value in losses], "norms": [value.hex() for value in norms]}


def _forget_attention_choice() -> None:
    # From 0.11 a model asserts that nobody chose an attention kernel before it, and chooses one.
    for name in [name for name in os.environ if name.startswith("NVTE_")]:
        del os.environ[name]


def _config(case: Case) -> Any:
    import torch
    from megatron.core.transformer.transformer_config import TransformerConfig

    known = {field.name for field in fields(TransformerConfig)}
    dtype = torch.bfloat16 if case.bf16 else torch.float32
    given: dict[str, Any] = {"num_layers": 2, "hidden_size": 32, "num_attention_heads": 4, "bf16": case.bf16}
    given |= {"use_cpu_initialization": case.cpu_init, "params_dtype": dtype, "pipeline_dtype": dtype}
    given |= {"hidden_dropout": case.dropout, "attention_dropout": case.dropout}
    given |= {"tensor_model_parallel_size": case.tp, "pipeline_model_parallel_size": case.pp}
    fusions = ("bias_dropout_fusion", "bias_activation_fusion", "bias_gelu_fusion", "masked_softmax_fusion")
    given |= {name: False for name in fusions if name in known}
    if case.llama:
        given |= {"normalization": "RMSNorm", "gated_linear_unit": True, "num_query_groups": 2}
        given |= {"activation_func": torch.nn.functional.silu, "add_bias_linear": False}
    if case.moe:
        given["num_moe_experts"] = 4
    return TransformerConfig(**given)


def _model(case: Case) -> Any:
    import torch
    from megatron.core import parallel_state
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed
    from megatron.core.transformer.module import Float16Module

    model_parallel_cuda_manual_seed(1234)
    torch.manual_seed(1234)
    config = _config(case)
    accepted = signature(get_gpt_layer_local_spec).parameters
    experts = {"num_experts": 4} if case.moe and "num_experts" in accepted else {}
    model = GPTModel(
        config=config,
        transformer_layer_spec=get_gpt_layer_local_spec(**experts),
        vocab_size=64,
        max_sequence_length=16,
        position_embedding_type="rope",
        pre_process=parallel_state.is_pipeline_first_stage(),
        post_process=parallel_state.is_pipeline_last_stage(),
        share_embeddings_and_output_weights=False,
    )
    model.cuda(torch.cuda.current_device())
    return Float16Module(config, model) if case.bf16 else model


def _wrap(case: Case, model: Any) -> Any:
    from megatron.core import distributed, parallel_state

    wrap = distributed.DistributedDataParallel
    accepted = signature(wrap.__init__).parameters
    flags = {"overlap_grad_reduce": False, "use_distributed_optimizer": case.distributed}
    given: dict[str, Any] = {"config": model.config, "module": model}
    if "ddp_config" in accepted:
        settings = distributed.DistributedDataParallelConfig
        flags |= {"average_in_collective": True} if case.average else {}
        given["ddp_config"] = settings(grad_reduce_in_fp32=True, **flags)
    else:
        given |= {"accumulate_allreduce_grads_in_fp32": True, **flags}
    if "data_parallel_group" in accepted:
        given["data_parallel_group"] = parallel_state.get_data_parallel_group(with_context_parallel=True)
    return wrap(**given)


def _optimizer(case: Case, model: Any) -> Any:
    import torch

    if importlib.util.find_spec("megatron.core.optimizer") is None:
        return None
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer

    config = OptimizerConfig(
        optimizer="adam",
        lr=1e-2,
        weight_decay=0.0,
        clip_grad=1.0,
        bf16=case.bf16,
        params_dtype=torch.bfloat16 if case.bf16 else torch.float32,
        use_distributed_optimizer=case.distributed,
    )
    optimizer = get_megatron_optimizer(config, [model])
    for group in optimizer.param_groups:
        group["lr"] = 1e-2
    return optimizer


def _zero(model: Any, optimizer: Any, case: Case) -> None:
    takes_flag = "zero_buffer" in signature(model.zero_grad_buffer).parameters
    model.zero_grad_buffer(*([case.distributed] if takes_flag else []))
    if optimizer is not None:
        optimizer.zero_grad()


def _forward_backward(model: Any, generator: Any) -> list[float]:
    import torch
    from megatron.core.pipeline_parallel import get_forward_backward_func

    batches = [torch.randint(0, 64, (2, 8), generator=generator).cuda() for _ in range(MICROBATCHES)]
    results = get_forward_backward_func()(
        forward_step_func=_forward,
        data_iterator=iter(batches),
        model=[model],
        num_microbatches=MICROBATCHES,
        seq_length=8,
        micro_batch_size=2,
        decoder_seq_length=8,
        forward_only=False,
    )
    return [result["loss"] for result in results]


def _forward(batches: Any, model: Any) -> Any:
    import torch

    tokens = next(batches)
    positions = torch.arange(8, device="cuda").unsqueeze(0).expand_as(tokens)
    hidden = torch.ones((1, 1, 8, 8), dtype=torch.bool, device=torch.cuda.current_device()).triu(1)

    def loss(output: Any) -> Any:
        value = output.float().mean()
        return value, {"loss": value.item()}

    return model(tokens, positions, hidden, labels=tokens), loss


def _step(model: Any, optimizer: Any) -> float:
    if optimizer is None:
        return float(sum(p.main_grad.double().square().sum() for p in model.parameters()) ** 0.5)
    updated, norm, _ = optimizer.step()
    assert updated
    return float(norm)
