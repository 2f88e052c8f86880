"""A norm with Megatron's constructor and torch's arithmetic.

Releases up to 0.9 build their norms from Apex or Transformer Engine. Later ones fall back to ``torch.nn``; so
does this class, which makes results equal bit for bit across that boundary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from mcore_compat.errors import ConfigError, FeatureUnavailable

_KINDS: dict[str, type[torch.nn.LayerNorm] | type[torch.nn.RMSNorm]] = {
    "LayerNorm": torch.nn.LayerNorm,
    "RMSNorm": torch.nn.RMSNorm,
}


class Norm:
    """Builds ``torch.nn.LayerNorm`` or ``torch.nn.RMSNorm`` over the last ``hidden_size`` elements, in fp32.

    Args:
        config: Megatron's ``TransformerConfig``; gives ``normalization`` and ``sequence_parallel``.
        hidden_size: Size, or sizes, of the normalised trailing dimensions.
        eps: Added to the variance (LayerNorm) or mean square (RMSNorm).
        persist_layer_norm: Accepted; it selects an Apex kernel and changes no value.
        sequence_parallel: Whether the input is split along the sequence; or-ed with the configuration's flag.
        zero_centered_gamma: Must be false, here and in the configuration.
        normalization: Must be the configuration's where it is not the default.

    Raises:
        FeatureUnavailable: Zero-centred weights were asked for.
        ConfigError: An unknown or contradictory ``normalization``.
    """

    def __new__(  # type: ignore[misc]  # Megatron calls the class and expects a module back
        cls,
        config: Any,
        hidden_size: int | Sequence[int],
        eps: float = 1e-5,
        persist_layer_norm: bool = False,
        sequence_parallel: bool = False,
        zero_centered_gamma: bool = False,
        normalization: str = "LayerNorm",
    ) -> torch.nn.Module:
        """Build the module."""
        kind = _kind(config, normalization)
        if zero_centered_gamma or getattr(config, "layernorm_zero_centered_gamma", False):
            raise FeatureUnavailable(
                f"layernorm_zero_centered_gamma is set, and torch's {kind} has no zero-centred weight",
                hint="unset it, or install Transformer Engine",
            )
        shape = [hidden_size] if isinstance(hidden_size, int) else list(hidden_size)
        norm = _KINDS[kind](shape, eps=eps)
        for parameter in norm.parameters():
            # Megatron reduces the gradients of marked parameters over the tensor-parallel group.
            parameter.sequence_parallel = sequence_parallel or config.sequence_parallel  # type: ignore[attr-defined]
        return norm


def _kind(config: Any, argument: str) -> str:
    kind = str(getattr(config, "normalization", argument))
    if kind not in _KINDS:
        raise ConfigError(
            f"normalization is {kind!r}; expected one of {', '.join(_KINDS)}", hint="set config.normalization"
        )
    if argument not in (kind, "LayerNorm"):
        raise ConfigError(
            f"normalization={argument!r} contradicts config.normalization={kind!r}",
            hint="set one of them only",
        )
    return kind
