"""What probes build: small models, wrappers and the global arguments of the first releases."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import torch

import mcore_compat


@contextmanager
def global_arguments(**changes: object) -> Iterator[Any]:
    """The repository's factory, while the program's arguments are these."""
    package = importlib.import_module("megatron.optimizer")
    arguments = all_arguments(**changes)
    with (
        mock.patch.object(package, "get_args", return_value=arguments),
        mock.patch.object(package.distrib_optimizer, "get_args", return_value=arguments),
    ):
        yield package.get_megatron_optimizer


def all_arguments(**changes: object) -> SimpleNamespace:
    """What the repository's optimizer asks the program's arguments for."""
    adam = {
        "optimizer": "adam",
        "lr": 0.1,
        "weight_decay": 0.0,
        "adam_beta1": 0.9,
        "adam_beta2": 0.99,
        "adam_eps": 1e-8,
    }
    precision = {"fp16": False, "bf16": False, "params_dtype": torch.float32, "loss_scale": None}
    checks = {"clip_grad": 0.0, "log_num_zeros_in_grad": False, "check_for_nan_in_loss_and_grad": False}
    rest = {"sgd_momentum": 0.9, "use_distributed_optimizer": True, "overlap_param_gather": False}
    return SimpleNamespace(**{**adam, **precision, **checks, **rest, **changes})


def core(name: str) -> Any:
    return importlib.import_module(f"megatron.core.{name}")


def tiny_config(**fields: Any) -> Any:
    sizes = {"num_layers": 1, "hidden_size": 8, "num_attention_heads": 1, "attention_dropout": 0.0}
    return mcore_compat.transformer_config(**{**sizes, **fields})


def plain_config() -> Any:
    return core("transformer").TransformerConfig(num_layers=1, hidden_size=8, num_attention_heads=1)


def layer(**changes: Any) -> Any:
    """A transformer layer, the first of its stage, without the core of attention."""
    spec = core("models.gpt.gpt_layer_specs").get_gpt_layer_local_spec().submodules
    spec.self_attention.submodules.core_attention = core("transformer.identity_op").IdentityOp
    config = tiny_config(use_cpu_initialization=True)
    for name, value in changes.items():
        setattr(config, name, value)
    return core("transformer.transformer_layer").TransformerLayer(config, spec, layer_number=1)


def wrapped_flat(model: torch.nn.Module, *, overlap: bool = False, distributed: bool = False) -> Any:
    """As 0.4 to 0.6 wrap it."""
    group = core("parallel_state").get_data_parallel_group(with_context_parallel=True)
    wrap = core("distributed").DistributedDataParallel
    return wrap(plain_config(), model, group, True, overlap or distributed, distributed)


def wrapped(model: torch.nn.Module, *, distributed: bool = False) -> Any:
    """As 0.8 and later wrap it."""
    package = core("distributed")
    settings = package.DistributedDataParallelConfig(
        use_distributed_optimizer=distributed, overlap_grad_reduce=distributed
    )
    return package.DistributedDataParallel(plain_config(), settings, model)


def mark(parameter: Any, name: str, value: object) -> None:
    """What Megatron tells its parameters apart by."""
    setattr(parameter, name, value)


def lies_in_its_bucket(wrapper: Any, parameter: torch.Tensor) -> bool:
    buffer = wrapper.buffers[0]
    start, stop, bucket = buffer.param_index_map[parameter]
    first, last = buffer.bucket_indices[bucket]
    return bool(first <= start and stop <= last)


def distributed_optimizer() -> Any:
    distributed = mcore_compat.DataParallelSettings(use_distributed_optimizer=True)
    config = tiny_config(use_cpu_initialization=True, bias_dropout_fusion=False)
    chunks = mcore_compat.gpt_model(config, vocab_size=8, max_sequence_length=4)
    wrapped = mcore_compat.wrap_data_parallel(chunks, config, distributed)
    return mcore_compat.build_optimizer(mcore_compat.OptimizerSettings(lr=0.1), wrapped, distributed)


@contextmanager
def stage(state: Any, rank: int) -> Iterator[None]:
    """While open, this is one of two pipeline stages."""
    state.set_pipeline_model_parallel_rank(rank)
    state.set_pipeline_model_parallel_world_size(2)
    try:
        yield
    finally:
        state.set_pipeline_model_parallel_rank(None)
        state.set_pipeline_model_parallel_world_size(None)


def psutil() -> ModuleType:
    """The one answer that the writer asks for, where the package is absent."""
    module = ModuleType("psutil")
    module.Process = lambda _=None: SimpleNamespace(memory_info=lambda: SimpleNamespace(rss=0))  # type: ignore[attr-defined]
    return module
