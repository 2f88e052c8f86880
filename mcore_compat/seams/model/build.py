"""Model chunks from a provider function, whatever flags the provider takes."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from mcore_compat.contracts import Groups
from mcore_compat.errors import ConfigError
from mcore_compat.runtime.device import device
from mcore_compat.seams.config import get_model_config

Provider = Callable[..., Any]


def build_model(provider: Provider) -> list[Any]:
    """Call ``provider`` once per model chunk of this rank and prepare what it returns for training.

    Args:
        provider: Returns a module whose ``config`` is a ``TransformerConfig``. It is called with those of the keywords
            ``pre_process``, ``post_process`` and ``vp_stage`` that it takes.

    Returns:
        One chunk, or ``vpp`` of them; on the right device, inside ``Float16Module`` for bf16 and fp16.

    Raises:
        ConfigError: There is no provider, it returns no module, or it requires a keyword that nobody passes.
    """
    from mcore_compat.seams._arguments import misplaced
    from mcore_compat.seams.parallel import groups

    if not callable(provider) or hasattr(provider, "named_parameters"):
        raise misplaced(provider, "a function that returns a module", "build_model(lambda: module)")
    here = groups()
    chunks = here.layout.vpp or 1
    return [_build_chunk(provider, _stage_flags(here, chunk, chunks)) for chunk in range(chunks)]


def unwrap(model: Any) -> Any:
    """The innermost module below data-parallel, half-precision and other wrappers; a list gives a list."""
    if isinstance(model, list | tuple):
        return [unwrap(chunk) for chunk in model]
    while hasattr(model, "module"):
        model = model.module
    return model


def _stage_flags(here: Groups, chunk: int, chunks: int) -> dict[str, Any]:
    return {
        "pre_process": here.is_first_stage and chunk == 0,
        "post_process": here.is_last_stage and chunk == chunks - 1,
        "vp_stage": chunk if chunks > 1 else None,
    }


def _build_chunk(provider: Provider, flags: dict[str, Any]) -> Any:
    from megatron.core import parallel_state, tensor_parallel
    from megatron.core.enums import ModelType
    from megatron.core.transformer.module import Float16Module

    if flags["vp_stage"] is not None:  # releases up to 0.12 place layers by this global
        parallel_state.set_virtual_pipeline_model_parallel_rank(flags["vp_stage"])
    module = provider(**_accepted_flags(provider, flags))
    if not hasattr(module, "named_parameters"):
        raise ConfigError(
            f"the model provider returned {type(module).__name__}, expected a module",
            hint="return one chunk; it is called once for each",
        )
    if not hasattr(module, "model_type"):
        module.model_type = ModelType.encoder_or_decoder
    _mark_sharded(module)
    for parameter in module.parameters():
        tensor_parallel.set_defaults_if_not_set_tensor_model_parallel_attributes(parameter)
    module.to(device())
    config = get_model_config(module)
    return Float16Module(config, module) if config.bf16 or config.fp16 else module


def _mark_sharded(module: Any) -> None:
    """Mark tensor-parallel weights as such; upstream does it while it draws them, so never for loaded models.

    Unmarked ones count as replicated, and the gradient norm would leave them out on all ranks but the first.
    """
    from megatron.core import tensor_parallel
    from megatron.core.tensor_parallel.layers import set_tensor_model_parallel_attributes

    cut = (
        (tensor_parallel.ColumnParallelLinear, {"weight": 0, "bias": 0}),
        (tensor_parallel.RowParallelLinear, {"weight": 1}),
        (tensor_parallel.VocabParallelEmbedding, {"weight": 0}),
    )
    for layer in module.modules():
        dimensions = next((found for kind, found in cut if isinstance(layer, kind)), {})
        for name, dimension in dimensions.items():
            parameter = getattr(layer, name, None)
            if parameter is not None and not hasattr(parameter, "tensor_model_parallel"):
                set_tensor_model_parallel_attributes(parameter, True, dimension, 1)


def _accepted_flags(provider: Provider, flags: dict[str, Any]) -> dict[str, Any]:
    parameters = inspect.signature(provider).parameters.values()
    for parameter in parameters:
        required = parameter.default is parameter.empty and parameter.kind not in (
            parameter.VAR_KEYWORD,
            parameter.VAR_POSITIONAL,
        )
        if required and parameter.name not in flags:
            raise ConfigError(
                f"the model provider requires {parameter.name!r}, which is not passed; it can take {', '.join(flags)}",
                hint=f"give {parameter.name!r} a default, or bind it with functools.partial",
            )
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return flags
    names = {parameter.name for parameter in parameters}
    return {name: value for name, value in flags.items() if name in names}
