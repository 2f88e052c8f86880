"""Upstream modules that would stop a run here, and the smallest change that lets it go on.

Each row tests a feature of the source, never a version, and is applied when the module has been imported: to what that
lacks, for a fork or a patch in memory may have mended it by then.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from mcore_compat.runtime.patches import Patch
from mcore_compat.runtime.source import Source

_OPTIMIZER = "megatron.core.optimizer"
_SPECS = "megatron.core.models.gpt.gpt_layer_specs"
_EXPERT_NAMES = (
    "TEColumnParallelGroupedLinear",
    "TEColumnParallelLinear",
    "TERowParallelGroupedLinear",
    "TERowParallelLinear",
)


@dataclass(frozen=True)
class Repair:
    """One row.

    Attributes:
        module: Megatron module that is changed.
        names: Attributes that are changed, for the report.
        why: What happens otherwise.
        needed: Whether this tree, with these packages absent, needs it.
        patches: Makes the changes once the module is there.
    """

    module: str
    names: str
    why: str
    needed: Callable[[Source, Collection[str]], bool]
    patches: Callable[[ModuleType], list[Patch]]


def _fused_norm_needed(source: Source, absent: Collection[str]) -> bool:
    return "apex" in absent and "\nfrom megatron.core.fusions.fused_layer_norm import" in source.text(_SPECS)


def _te_norm_needed(source: Source, absent: Collection[str]) -> bool:
    return "transformer_engine" in absent and "transformer_engine" in source.importers


def _torch_norm_needed(source: Source, absent: Collection[str]) -> bool:
    text = source.text("megatron.core.transformer.torch_layer_norm")
    return "apex" in absent and "class WrappedTorchLayerNorm(torch.nn.LayerNorm)" in text


def _fused_optimizer_needed(source: Source, absent: Collection[str]) -> bool:
    asserted = re.search(r"assert \(?\s*HAVE_APEX_OR_TE", source.text(f"{_OPTIMIZER}.distrib_optimizer"))
    return {"apex", "transformer_engine"} <= set(absent) and asserted is not None


def _empty_fp8_needed(source: Source, absent: Collection[str]) -> bool:
    text = source.text("megatron.core.fp8_utils")
    return "transformer_engine" in absent and "def _quantize_param_shard_impl(*args, **kwargs)" in text


def _fp32_needed(source: Source, absent: Collection[str]) -> bool:
    text = source.text(f"{_OPTIMIZER}.optimizer")
    _, abstract, rest = text.partition("class FP32Optimizer(")
    return (
        bool(abstract)
        and "def sharded_state_dict" not in rest.partition("\nclass ")[0]
        and ("@abstractmethod\n    def sharded_state_dict" in text)
    )


def _gemm_needed(source: Source, absent: Collection[str]) -> bool:
    text = source.text("megatron.core.transformer.moe.moe_utils")
    defined_once = text.count("        te_general_gemm,\n") == 1
    return "transformer_engine" in absent and defined_once and "if te_general_gemm is not None" in text


def _expert_names_needed(source: Source, absent: Collection[str]) -> bool:
    text = source.text(_SPECS)
    used = "use_te and TEColumnParallelGroupedLinear is not None" in text
    return "transformer_engine" in absent and used and "TEColumnParallelGroupedLinear = None" not in text


def _version_needed(source: Source, absent: Collection[str]) -> bool:
    text = source.text("megatron.core.utils")
    answered = '_te_version = PkgVersion("0.0.0")' in text
    return "transformer_engine" in absent and "_te_version = None" in text and not answered


def _product_needed(source: Source, absent: Collection[str]) -> bool:
    import numpy

    return not hasattr(numpy, "product") and "np.product(" in source.text("megatron.core.dist_checkpointing.mapping")


def _use_norm(name: str) -> Callable[[ModuleType], list[Patch]]:
    def patches(module: ModuleType) -> list[Patch]:
        from mcore_compat.runtime.norm import Norm

        return [Patch(module, name, Norm, "built from an absent package")]

    return patches


def _use_optimizers(module: ModuleType) -> list[Patch]:
    from mcore_compat.runtime.optimizers import FusedAdam, FusedSGD

    values = {"Adam": FusedAdam, "SGD": FusedSGD, "HAVE_APEX_OR_TE": True}
    names = ("Adam", "SGD") if module.__name__ == _OPTIMIZER else ("Adam", "HAVE_APEX_OR_TE")
    return [Patch(module, name, values[name], "asserts Apex or Transformer Engine") for name in names]


def _skip_empty_fp8(module: ModuleType) -> list[Patch]:
    upstream = module.quantize_param_shard

    def quantize_param_shard(model_params: list[Any], *args: Any, **kwargs: Any) -> None:
        if model_params:
            upstream(model_params, *args, **kwargs)

    return [Patch(module, "quantize_param_shard", quantize_param_shard, "no fp8 parameter, nothing to quantize")]


def _make_fp32_concrete(module: ModuleType) -> list[Patch]:
    kind = module.FP32Optimizer
    if "sharded_state_dict" not in kind.__abstractmethods__:
        return []

    def sharded_state_dict(self: Any, model_sharded_state_dict: Any, is_loading: bool = False) -> Any:
        from mcore_compat.errors import FeatureUnavailable

        raise FeatureUnavailable(
            "FP32Optimizer of this release has no sharded_state_dict",
            hint="use state_dict(), or the distributed optimizer",
        )

    left = kind.__abstractmethods__ - {"sharded_state_dict"}
    why = "abstract method never implemented"
    return [
        Patch(kind, "sharded_state_dict", sharded_state_dict, why),
        Patch(kind, "__abstractmethods__", left, why),
    ]


def _name_gemm(module: ModuleType) -> list[Patch]:
    return _name(module, ["te_general_gemm"])


def _name_experts(module: ModuleType) -> list[Patch]:
    return _name(module, _EXPERT_NAMES)


def _name(module: ModuleType, names: Iterable[str]) -> list[Patch]:
    missing = [name for name in names if not hasattr(module, name)]
    return [Patch(module, name, None, "tested against None but undefined") for name in missing]


def _answer_version(module: ModuleType) -> list[Patch]:
    from packaging.version import Version

    if module._te_version is not None:
        return []
    return [Patch(module, "_te_version", Version("0.0.0"), "an absent package is older than any")]


def _name_product(module: ModuleType) -> list[Patch]:
    import numpy

    return [Patch(numpy, "product", numpy.prod, "removed in numpy 2")]


REPAIRS = (
    Repair(
        "megatron.core.fusions.fused_layer_norm",
        "FusedLayerNorm",
        "its constructor raises without apex",
        _fused_norm_needed,
        _use_norm("FusedLayerNorm"),
    ),
    Repair(
        "megatron.core.transformer.custom_layers.transformer_engine",
        "TENorm",
        "the final norm is built from transformer_engine, which is absent",
        _te_norm_needed,
        _use_norm("TENorm"),
    ),
    Repair(
        "megatron.core.transformer.torch_layer_norm",
        "WrappedTorchLayerNorm",
        "has no RMSNorm and refuses sequence parallelism",
        _torch_norm_needed,
        _use_norm("WrappedTorchLayerNorm"),
    ),
    Repair(
        _OPTIMIZER,
        "Adam, SGD",
        "DistributedOptimizer asserts apex or transformer_engine",
        _fused_optimizer_needed,
        _use_optimizers,
    ),
    Repair(
        f"{_OPTIMIZER}.distrib_optimizer",
        "Adam, HAVE_APEX_OR_TE",
        "DistributedOptimizer asserts apex or transformer_engine",
        _fused_optimizer_needed,
        _use_optimizers,
    ),
    Repair(
        f"{_OPTIMIZER}.optimizer",
        "FP32Optimizer.sharded_state_dict",
        "abstract, so plain fp32 optimizers cannot be constructed",
        _fp32_needed,
        _make_fp32_concrete,
    ),
    Repair(
        "megatron.core.fp8_utils",
        "quantize_param_shard",
        "raises without transformer_engine even when no parameter is fp8",
        _empty_fp8_needed,
        _skip_empty_fp8,
    ),
    Repair(
        "megatron.core.transformer.moe.moe_utils",
        "te_general_gemm",
        "undefined without transformer_engine; the MoE router raises NameError",
        _gemm_needed,
        _name_gemm,
    ),
    Repair(
        _SPECS,
        ", ".join(_EXPERT_NAMES),
        "undefined without transformer_engine; the local spec of an MoE model raises NameError",
        _expert_names_needed,
        _name_experts,
    ),
    Repair(
        "megatron.core.utils",
        "_te_version",
        "asking whether transformer_engine is new enough raises where it is absent",
        _version_needed,
        _answer_version,
    ),
    Repair(
        "megatron.core.dist_checkpointing.mapping",
        "numpy.product",
        "removed in numpy 2; checkpoint validation raises",
        _product_needed,
        _name_product,
    ),
)
