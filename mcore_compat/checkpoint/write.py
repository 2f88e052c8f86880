"""``save``: models of all ranks → one folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors.torch import save as to_bytes

from mcore_compat.checkpoint.files import Draft, Hashes
from mcore_compat.checkpoint.gather import Gatherer, Tensors
from mcore_compat.checkpoint.ranks import gathered, together
from mcore_compat.checkpoint.train_state import TrainState
from mcore_compat.contracts import Groups
from mcore_compat.detect import find
from mcore_compat.errors import CheckpointError, ConfigError
from mcore_compat.seams._arguments import require_chunks, require_optimizer
from mcore_compat.seams._memory import require_here
from mcore_compat.seams.optimizer_state import OptimizerState
from mcore_compat.seams.parallel import groups
from mcore_compat.seams.rng import rng_state

# A rank holds no more than this of a model beside the model itself.
BYTES_PER_FILE = 1 << 30


def save_checkpoint(
    folder: Path | str,
    models: Mapping[str, TrainState],
    *,
    step: int,
    state: Mapping[str, Any] | None = None,
    keep: int | None = None,
) -> Path:
    """Write a checkpoint that any release and any layout can resume; all ranks call.

    It appears at once: a process killed at any moment leaves the earlier checkpoints as they are and ``latest`` on a
    whole one. All ranks must see the same folder.

    Args:
        folder: Of all checkpoints of a run; this one becomes ``step-<step>`` in it.
        models: By role, such as ``actor`` and ``critic``.
        step: Steps done; a checkpoint of the same step is replaced.
        state: The caller's own, as values that JSON can hold.
        keep: How many checkpoints stay, this one included; ``None``: all.

    Returns:
        The folder of this checkpoint.

    Raises:
        CheckpointError: It cannot be written, or holds something that the format does not know.
        ConfigError: ``keep`` is less than 1, ``step`` no whole number, a role no plain name, or a model is offloaded or
            comes with the optimizer of another one.
        PeerLost: Another rank failed.
    """
    check_models(models)
    _check_arguments(models, step, keep)
    here, draft = groups(), Draft(Path(folder), step)
    with together("saving a checkpoint", draft.folder):
        if dist.get_rank() == 0:
            draft.begin()
    with together("saving a checkpoint", draft.folder):
        files = _write_all(draft, models, here)
    files = {name: found for theirs in gathered(files) for name, found in theirs.items()}
    content = {
        "step": step,
        "megatron": find().version or "unknown",
        "layout": layout_of(here),
        "models": {role: _described(model) for role, model in models.items()},
        "state": dict(state or {}),
    }
    target = draft.folder
    with together("saving a checkpoint", draft.folder):
        if dist.get_rank() == 0:
            target = _finish(draft, files, content, keep)
    return gathered(target)[0]


def layout_of(here: Groups) -> dict[str, Any]:
    """What random numbers of a rank depend on."""
    return {**asdict(here.layout), "dp": here.dp.size}


def check_models(models: Mapping[str, TrainState]) -> None:
    """Make sure that each is a model with its own optimizer, in memory.

    Raises:
        ConfigError: It is not.
    """
    if not isinstance(models, Mapping) or not models or not all(isinstance(m, TrainState) for m in models.values()):
        raise ConfigError(
            "expected models by role", hint='{"actor": mcore_compat.TrainState(chunks, optimizer)}, after the folder'
        )
    for role, model in models.items():
        require_chunks(model.chunks)
        require_here(model.chunks, f"the checkpoint of {role}", "params")
        if model.optimizer is not None:
            require_optimizer(model.optimizer, model.chunks)
            require_here(model.chunks, f"the checkpoint of {role}", "optimizer")


def _check_arguments(models: Mapping[str, TrainState], step: int, keep: int | None) -> None:
    if not isinstance(step, int) or step < 0:
        raise ConfigError(f"step is {step!r}; expected a whole number of steps", hint="step=0 before the first one")
    if keep is not None and keep < 1:
        raise ConfigError(f"keep is {keep}; expected 1 or more", hint="None keeps all checkpoints")
    for role in models:
        if not str(role).isidentifier() or role == "rng":
            raise ConfigError(f"{role!r} cannot be the role of a model", hint="use a name such as 'actor'")


def _write_all(draft: Draft, models: Mapping[str, TrainState], here: Groups) -> Hashes:
    """Write what this rank writes. A full disk stops no stream: other ranks wait for this one's part in it."""
    files: Hashes = {}
    failure: OSError | None = None
    for name, shard in _all_shards(models, here):
        try:
            files |= {} if failure else draft.write(name, to_bytes(shard))
        except OSError as error:
            failure = error
    if failure is not None:
        raise failure
    return files


def _all_shards(models: Mapping[str, TrainState], here: Groups) -> Iterator[tuple[str, dict[str, torch.Tensor]]]:
    for role, model in models.items():
        if model.optimizer is not None:
            model.optimizer.finish_param_sync()
        gatherer = Gatherer(model, here)
        for part, tensors in (("weights", gatherer.weights()), ("optimizer", gatherer.optimizer())):
            for number, shard in enumerate(_shards(tensors)):
                yield f"{role}/{part}/{here.pp.rank:03}-{number:05}.safetensors", shard
    yield f"rng/{dist.get_rank():05}.safetensors", rng_state()


def _shards(tensors: Tensors) -> Iterator[dict[str, torch.Tensor]]:
    shard: dict[str, torch.Tensor] = {}
    size = 0
    for name, tensor in tensors:
        if shard and size + tensor.nbytes > BYTES_PER_FILE:
            yield shard
            shard, size = {}, 0
        shard[name] = tensor
        size += tensor.nbytes
    if shard:
        yield shard


def _described(model: TrainState) -> dict[str, Any]:
    described: dict[str, Any] = {}
    if model.optimizer is not None:
        state = OptimizerState(model.optimizer)
        described["optimizer"] = {
            "kind": model.optimizer.settings.optimizer,
            "step": max(gathered(state.step)),
            "lr": state.lr,
            "loss_scale": state.loss_scale,
        }
    if model.scheduler is not None:
        described["scheduler"] = model.scheduler.state_dict()
    return described


def _finish(draft: Draft, files: Hashes, content: Mapping[str, Any], keep: int | None) -> Path:
    try:
        return draft.finish(files, content, keep)
    except TypeError as error:
        hint = "numbers, texts, lists and dicts can be saved; turn tensors into lists"
        raise CheckpointError(f"state or scheduler holds what JSON cannot: {error}", hint=hint) from error
