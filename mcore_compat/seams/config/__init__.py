"""The transformer configuration: one set of field names on every release, and the accessor that finds it on a model."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mcore_compat.contracts import Precision
from mcore_compat.errors import ConfigError, FeatureUnavailable
from mcore_compat.runtime.device import is_host
from mcore_compat.seams.config.fields import FIRST_RELEASE, REMOVED, RENAMED
from mcore_compat.seams.keywords import is_off, unavailable

if TYPE_CHECKING:
    import torch

_NEEDED = ("num_layers", "hidden_size", "num_attention_heads")


def transformer_config(*, precision: Precision = "fp32", **fields: Any) -> Any:
    """Build this release's ``TransformerConfig``.

    Sizes of the parallel layout are filled in from :func:`mcore_compat.init_parallel`; ``params_dtype``,
    ``pipeline_dtype``, ``bf16`` and ``fp16`` from ``precision``; on the CPU host ``deterministic_mode`` is on, so that
    results are the same on every release. Everything can be overridden.

    Args:
        precision: ``fp32``, ``bf16`` or ``fp16``: type of parameters and of what pipeline stages exchange.
        **fields: Fields under the names of the newest release (older names are understood too).

    Raises:
        ConfigError: A field that no release has, or a combination that Megatron refuses.
        FeatureUnavailable: A field that only later releases have, set to something else than ``None`` or ``False``.
    """
    layout = _layout_fields()
    from megatron.core.transformer import TransformerConfig

    known = frozenset(field.name for field in dataclasses.fields(TransformerConfig))
    wanted = {**layout, **_precision_fields(precision), **_host_fields(known), **fields}
    _check_interleaving(wanted)
    _check_precision(wanted, fields)
    translated = _translate(wanted, known)
    try:
        return TransformerConfig(**translated)
    except (ArithmeticError, AssertionError, TypeError, ValueError) as error:
        absent = [name for name in _NEEDED if not wanted.get(name)]
        raise ConfigError(
            f"TransformerConfig refused its fields: {error or type(error).__name__}",
            hint=f"give {', '.join(absent)}" if absent else "",
        ) from error


def get_model_config(model: Any, attribute: str = "config") -> Any:
    """The Megatron configuration of a model, through any wrappers.

    Args:
        model: A model chunk, or a list of them (the first one's configuration is returned).
        attribute: Where the framework keeps it (``config`` upstream; some forks keep the Hugging Face configuration
            there and Megatron's in, say, ``megatron_config``).

    Raises:
        ConfigError: No layer of the model has the attribute.
    """
    module = (model or [None])[0] if isinstance(model, list | tuple) else model
    seen = []
    while module is not None:
        if attribute in vars(module) or hasattr(type(module), attribute):
            return getattr(module, attribute)
        seen.append(type(module).__name__)
        module = getattr(module, "module", None)
    raise ConfigError(
        f"no attribute {attribute!r} on {' > '.join(seen)}",
        hint="name the attribute that holds the Megatron config",
    )


def _layout_fields() -> dict[str, Any]:
    from mcore_compat.seams.parallel import groups

    layout = groups().layout
    # Upstream's training program sets these two for the interleaved schedule; its library does not.
    overlap = {"overlap_p2p_comm": True, "batch_p2p_comm": False} if layout.vpp else {}
    return {
        **overlap,
        "tensor_model_parallel_size": layout.tp,
        "pipeline_model_parallel_size": layout.pp,
        "virtual_pipeline_model_parallel_size": layout.vpp,
        "context_parallel_size": layout.cp,
        "expert_model_parallel_size": layout.ep,
        "expert_tensor_parallel_size": layout.expert_tp,
    }


def _host_fields(known: frozenset[str]) -> dict[str, Any]:
    """From 0.8 on embeddings are looked up by a function whose backward adds in another order, unless deterministic."""
    return {"deterministic_mode": True} if is_host() and "deterministic_mode" in known else {}


def _check_interleaving(wanted: Mapping[str, Any]) -> None:
    interleaved = wanted["virtual_pipeline_model_parallel_size"] and wanted["pipeline_model_parallel_size"] == 2
    if interleaved and not wanted["overlap_p2p_comm"]:
        raise ConfigError(
            "overlap_p2p_comm=False with the interleaved schedule on 2 pipeline stages: both neighbours of a stage are "
            "the same rank, and activations would be received as gradients",
            hint="leave overlap_p2p_comm out",
        )


def _check_precision(wanted: Mapping[str, Any], fields: Mapping[str, Any]) -> None:
    for name in ("bf16", "fp16"):
        if fields.get(name) and wanted["params_dtype"] != dtype_of(name):
            raise ConfigError(
                f"{name}=True, but parameters are of {wanted['params_dtype']}", hint=f'leave it out: precision="{name}"'
            )


def _precision_fields(precision: Precision) -> dict[str, Any]:
    dtype = dtype_of(precision)
    return {
        "params_dtype": dtype,
        "pipeline_dtype": dtype,
        "bf16": precision == "bf16",
        "fp16": precision == "fp16",
    }


def dtype_of(precision: Precision) -> torch.dtype:
    """The torch type of a precision.

    Raises:
        ConfigError: It is none of ``fp32``, ``bf16``, ``fp16``.
    """
    import torch

    dtypes = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
    if precision not in dtypes:
        raise ConfigError(f"precision must be one of {', '.join(dtypes)}, found {precision!r}")
    return dtypes[precision]


def _translate(wanted: Mapping[str, Any], known: frozenset[str]) -> dict[str, Any]:
    newest = {old: new for new, old in RENAMED.items()}
    translated = {}
    for name, value in wanted.items():
        current = newest.get(name, name)
        here = next((candidate for candidate in (current, RENAMED.get(current)) if candidate in known), None)
        if here is not None:
            translated[here] = value
        elif current not in FIRST_RELEASE:
            raise _unknown(name, known)
        elif not is_off(value):
            raise _unavailable_field(f"TransformerConfig({name}={value!r})", current)
    return translated


def _unavailable_field(setting: str, name: str) -> FeatureUnavailable:
    if name in REMOVED:
        return FeatureUnavailable(
            f"this Megatron-Core no longer has {setting}; {REMOVED[name]} was the last release with it.",
            hint="leave the field out",
        )
    return unavailable(setting, FIRST_RELEASE[name])


def _unknown(name: str, known: frozenset[str]) -> ConfigError:
    near = difflib.get_close_matches(name, known | FIRST_RELEASE.keys(), n=1)
    suggestion = f"did you mean {near[0]!r}?" if near else "see TransformerConfig of the newest release"
    return ConfigError(f"TransformerConfig has no field {name!r} in any release", hint=suggestion)
