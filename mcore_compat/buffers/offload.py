"""Device memory of models and optimizers, freed and restored without breaking an alias.

Everything that Megatron holds is a view of some storage. The storage object stays, only its memory goes: whoever holds
a view (buckets, slices of the distributed optimizer, views of ``memory_buffers``) sees the same values afterwards.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Literal

import torch

from mcore_compat.errors import ConfigError
from mcore_compat.seams._arguments import misplaced, require_chunks
from mcore_compat.seams._memory import away as parts_away
from mcore_compat.seams.param_sync import finish_pending

Part = Literal["params", "grads", "optimizer"]
PARTS: tuple[Part, ...] = ("params", "grads", "optimizer")
# Storages without memory, with the copy that each is restored from.
_Away = dict[Part, list[tuple[torch.UntypedStorage, torch.UntypedStorage]]]


def offload(chunks: Sequence[Any], optimizer: Any = None, parts: Collection[Part] = PARTS) -> int:
    """Copy parts of the training state to the CPU's memory and free them on their device.

    Until :func:`reload` nothing may read them. Call it between steps, or between the backward pass and the step; a
    pending parameter gather is finished first, so all data-parallel ranks call. What is away already is left alone.

    Args:
        chunks: Model chunks of this rank, wrapped or not.
        optimizer: From :func:`mcore_compat.build_optimizer`, or upstream's; not needed for the other parts.
        parts: ``params`` (frozen ones included), ``grads`` (the gradient buffers), ``optimizer`` (fp32 copies and
            moments).

    Returns:
        Bytes that were freed.

    Raises:
        ConfigError: Arguments of another kind, an unknown part, or ``optimizer`` without one.
    """
    _check(chunks, parts)
    if "optimizer" in parts and optimizer is None:
        raise ConfigError("there is no optimizer to offload", hint="pass it, or parts={'params', 'grads'}")
    inner = getattr(optimizer, "inner", optimizer)
    if optimizer is not None and not hasattr(inner, "optimizer") and not hasattr(inner, "chained_optimizers"):
        raise misplaced(optimizer, "the optimizer of build_optimizer", "offload(chunks, optimizer, parts)")
    away: _Away = parts_away(chunks)
    if "params" not in away:
        finish_pending(chunks)
    freed = 0
    for part in PARTS:
        if part in parts and part not in away:
            away[part] = [(storage, _copy(storage)) for storage in _storages(part, chunks, optimizer)]
            freed += sum(copy.nbytes() for _, copy in away[part])
            for storage, _ in away[part]:
                storage.resize_(0)
    if freed:
        torch.cuda.empty_cache()
    return freed


def reload(chunks: Sequence[Any], optimizer: Any = None, parts: Collection[Part] = PARTS) -> None:
    """Bring parts back to where they were, bit for bit. What is not away is left alone.

    Args:
        chunks: As given to :func:`offload`.
        optimizer: For symmetry; what is away is known.
        parts: Which ones.

    Raises:
        ConfigError: An unknown part.
    """
    _check(chunks, parts)
    away: _Away = parts_away(chunks)
    for part in parts:
        for storage, copy in away.pop(part, []):
            storage.resize_(copy.nbytes())
            storage.copy_(copy)


def _check(chunks: Sequence[Any], parts: Collection[Part]) -> None:
    require_chunks(chunks)
    unknown = sorted(set(parts) - set(PARTS))
    if unknown or isinstance(parts, str):
        raise ConfigError(f"unknown parts {unknown or parts}; expected a collection of some of {', '.join(PARTS)}")


def _copy(storage: torch.UntypedStorage) -> torch.UntypedStorage:
    memory = torch.empty(storage.nbytes(), dtype=torch.uint8, pin_memory=storage.device.type == "cuda")
    copy = memory.untyped_storage()
    copy.copy_(storage, non_blocking=False)
    return copy


def _storages(part: Part, chunks: Sequence[Any], optimizer: Any) -> list[torch.UntypedStorage]:
    """The storages of a part, each once; what a parameter or gradient shares with the optimizer is not the latter's."""
    parameters = [parameter for chunk in chunks for parameter in chunk.parameters()]
    model = _distinct(parameter.data for parameter in parameters)
    gradients = {key: found for key, found in _distinct(_gradients(parameters)).items() if key not in model}
    if part == "params":
        return list(model.values())
    if part == "grads":
        return list(gradients.values())
    device = parameters[0].device.type
    own = _distinct(tensor for tensor in _optimizer_tensors(optimizer) if tensor.device.type == device)
    return [storage for key, storage in own.items() if key not in model and key not in gradients]


def _distinct(tensors: Iterable[torch.Tensor]) -> dict[int, torch.UntypedStorage]:
    # Not by address: that of a storage without memory is 0.
    storages = (tensor.untyped_storage() for tensor in tensors)
    return {storage._cdata: storage for storage in storages}


def _gradients(parameters: Iterable[torch.nn.Parameter]) -> Iterator[torch.Tensor]:
    for parameter in parameters:
        held = (getattr(parameter, name, None) for name in ("grad", "main_grad", "main_grad_copy_in_grad_buffer"))
        yield from (tensor for tensor in held if tensor is not None)


def _optimizer_tensors(optimizer: Any) -> Iterator[torch.Tensor]:
    inner = getattr(optimizer, "inner", optimizer)
    for one in getattr(inner, "chained_optimizers", [inner]):
        torch_optimizer = getattr(one, "optimizer", None)
        if torch_optimizer is None:  # a rank without parameters
            continue
        for group in torch_optimizer.param_groups:
            for parameter in group["params"]:
                yield from (parameter.data,) if parameter.grad is None else (parameter.data, parameter.grad)
        values = chain.from_iterable(state.values() for state in torch_optimizer.state.values())
        yield from (value for value in values if isinstance(value, torch.Tensor))
