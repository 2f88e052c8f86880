"""Random seeds and the state of the generators, the same on every release."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

_CPU, _CUDA, _TRACKED = "cpu", "cuda", "megatron."


def seed(value: int) -> None:
    """Seed torch's default generators and Megatron's tensor-parallel ones.

    Model-parallel ranks draw different numbers for sharded parameters and dropout (upstream adds 2718 and the rank),
    data-parallel ranks the same.

    Args:
        value: Any non-negative integer.

    Raises:
        ConfigError: There are no process groups yet.
    """
    import torch

    from mcore_compat.seams.parallel import groups

    groups()
    from megatron.core.tensor_parallel import model_parallel_cuda_manual_seed

    model_parallel_cuda_manual_seed(value)
    torch.manual_seed(value)  # last: on the CPU host Megatron seeds the same generator


def rng_state() -> dict[str, torch.Tensor]:
    """Return the states of this rank's generators, uint8 on the CPU: torch's default ones and Megatron's by name."""
    import torch
    from megatron.core.tensor_parallel import get_cuda_rng_tracker

    from mcore_compat.runtime.device import device

    tracked = get_cuda_rng_tracker().get_states()
    states = {_CPU: torch.get_rng_state(), **{f"{_TRACKED}{name}": state for name, state in tracked.items()}}
    return states | {_CUDA: torch.cuda.get_rng_state()} if device().type == "cuda" else states


def set_rng_state(states: Mapping[str, torch.Tensor]) -> None:
    """Take :func:`rng_state` back; generators that this release does not have are left out."""
    import torch
    from megatron.core.tensor_parallel import get_cuda_rng_tracker

    from mcore_compat.runtime.device import device

    tracker = get_cuda_rng_tracker()
    tracked = tracker.get_states()
    tracker.set_states({name: states.get(f"{_TRACKED}{name}", state) for name, state in tracked.items()})
    torch.set_rng_state(states[_CPU])
    if device().type == "cuda" and _CUDA in states:
        torch.cuda.set_rng_state(states[_CUDA])
