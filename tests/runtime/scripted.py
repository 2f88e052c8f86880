"""Functions for compilers; annotations are real here, because TorchScript reads them."""

import torch


def padded(values: torch.Tensor) -> torch.Tensor:
    """Values, then as many zeros, then a one."""
    zeros = torch.zeros(values.size(0), device=values.device)
    return torch.cat([values, zeros, torch.ones(1).to(values.dtype)])
