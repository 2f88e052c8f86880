"""Random seeds, the same on every release."""

from __future__ import annotations


def seed(value: int) -> None:
    """Seed torch's default generators and Megatron's tensor-parallel ones.

    Model-parallel ranks draw different numbers for sharded parameters and dropout (upstream adds 2718 and the rank),
    data-parallel ranks the same.

    Args:
        value: Any non-negative integer.
    """
    import torch
    from megatron.core.tensor_parallel import model_parallel_cuda_manual_seed

    model_parallel_cuda_manual_seed(value)
    torch.manual_seed(value)  # last: on the CPU host Megatron seeds the same generator
