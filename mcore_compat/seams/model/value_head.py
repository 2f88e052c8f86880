"""The critic's head: one value per token, safe under tensor, pipeline and sequence parallelism."""

from __future__ import annotations

from typing import Any

import torch


class ValueHead(torch.nn.Module):
    """Replaces the vocabulary head of a GPT model; every tensor-parallel rank holds the whole weight.

    The weight has shape [1, H] in the parameters' type; values are computed in fp32. It is drawn from a generator
    seeded with torch's initial seed, so it does not depend on the layout or the release.
    """

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = config
        generator = torch.Generator().manual_seed(torch.initial_seed())
        weight = torch.empty(1, config.hidden_size).normal_(0.0, config.init_method_std, generator=generator)
        self.weight = torch.nn.Parameter(weight.to(config.params_dtype))

    def forward(self, hidden: torch.Tensor, weight: object = None, **unused: object) -> tuple[torch.Tensor, None]:
        """Compute values.

        Args:
            hidden: [T, R, H], or the local part of T under sequence parallelism.
            weight: Ignored; upstream passes the tied embedding where there is one.
            **unused: Switches of the vocabulary head, meaningless here.

        Returns:
            Values [T, R, 1] in fp32, and no bias.
        """
        if self.config.sequence_parallel:
            from megatron.core.tensor_parallel import gather_from_sequence_parallel_region

            # Each rank computes the same values from the whole sequence, so its gradient is complete, not partial.
            hidden = gather_from_sequence_parallel_region(hidden, tensor_parallel_output_grad=False)
        return torch.nn.functional.linear(hidden.float(), self.weight.float()), None
