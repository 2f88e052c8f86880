"""``load``: one folder → the models of all ranks, in whatever layout they are."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch.distributed as dist
from safetensors.torch import load_file

from mcore_compat.checkpoint.files import Manifest, damage, latest, read_manifest
from mcore_compat.checkpoint.fill import Filler, TensorFiles
from mcore_compat.checkpoint.ranks import gathered, together
from mcore_compat.checkpoint.train_state import Restored, TrainState
from mcore_compat.checkpoint.write import check_models, layout_of
from mcore_compat.contracts import Groups
from mcore_compat.errors import CheckpointError, ConfigError
from mcore_compat.seams.optimizer_state import OptimizerState
from mcore_compat.seams.parallel import groups
from mcore_compat.seams.rng import set_rng_state

# weights and optimizer -> names of their files
Parts = dict[str, list[str]]


def load_checkpoint(
    folder: Path | str, models: Mapping[str, TrainState], *, fresh_optimizer: Collection[str] = ()
) -> Restored:
    """Restore models, optimizers, schedulers and random number generators; all ranks call.

    Nothing is changed before every file has been checked against its hash and every tensor against the model. No
    pickle is read. Random number generators are restored where the layout is the one that saved.

    Args:
        folder: Where :func:`save_checkpoint` wrote: the run's folder (the newest checkpoint is taken) or one
            checkpoint in it.
        models: By role; further models of the checkpoint are left out.
        fresh_optimizer: Roles whose optimizer starts anew, with zero moments; each gives a warning.

    Raises:
        CheckpointError: There is none, it is damaged (the file is named), it lacks a model or an optimizer's or
            scheduler's state (both are named), or it belongs to another model.
        ConfigError: ``fresh_optimizer`` names no model, or a model is offloaded or comes with the optimizer of another.
        PeerLost: Another rank failed.
    """
    check_models(models)
    unknown = sorted(set(fresh_optimizer) - models.keys())
    if unknown:
        raise ConfigError(f"fresh_optimizer names {unknown[0]!r}, which is not among {', '.join(models)}")
    here = groups()
    with together("loading a checkpoint", Path(folder)):
        manifest = _manifest(Path(folder))
        parts = {role: _parts(manifest, role, model, role in fresh_optimizer) for role, model in models.items()}
    content, rng = manifest.content, manifest.part("rng")
    same_layout = content["layout"] == layout_of(here)
    needed = [name for files in parts.values() for part in files.values() for name in part]
    _verify(manifest, [*needed, *(rng if same_layout else [])])
    _restore_all(manifest, models, parts, here)
    if same_layout:
        set_rng_state(load_file(manifest.folder / rng[dist.get_rank()]))
    for role in sorted(fresh_optimizer):
        warnings.warn(f"{role}: the optimizer starts with zero moments, as fresh_optimizer asks", stacklevel=2)
    return Restored(content["step"], content["state"], content["megatron"], same_layout, manifest.folder)


def _manifest(folder: Path) -> Manifest:
    found = latest(folder)
    if found is None:
        raise CheckpointError(f"no checkpoint in {folder}", hint="give the folder that save_checkpoint wrote to")
    return read_manifest(found)


def _parts(manifest: Manifest, role: str, model: TrainState, fresh: bool) -> Parts:
    """The files of each part that is needed, all of which are there."""
    saved = manifest.content["models"]
    if role not in saved:
        raise CheckpointError(f"{manifest.folder} has no {role}; it has {', '.join(saved) or 'no model'}")
    parts: Parts = {"weights": manifest.part(f"{role}/weights")}
    if not parts["weights"]:
        raise CheckpointError(f"{role}: the weights are missing in {manifest.folder / role / 'weights'}")
    if model.scheduler is not None and "scheduler" not in saved[role]:
        raise CheckpointError(f"{role}: the scheduler state is missing in {manifest.folder}")
    if model.optimizer is not None and not fresh:
        parts["optimizer"] = _optimizer_files(manifest, role, model.optimizer.settings.optimizer)
    return parts


def _optimizer_files(manifest: Manifest, role: str, kind: str) -> list[str]:
    saved = manifest.content["models"][role].get("optimizer")
    files = manifest.part(f"{role}/optimizer")
    if saved is None or not files:
        raise CheckpointError(
            f"{role}: the optimizer state is missing in {manifest.folder / role / 'optimizer'}",
            hint=_waiver(role),
        )
    if saved["kind"] != kind:
        raise CheckpointError(
            f"{role}: the optimizer state is of {saved['kind']}, the optimizer is {kind}",
            hint=_waiver(role),
        )
    return files


def _waiver(role: str) -> str:
    return f"fresh_optimizer=[{role!r}], or trainer.resume_fresh_optimizer=[{role}], resumes with zero moments"


def _verify(manifest: Manifest, names: list[str]) -> None:
    """Hash the files, a share on each rank; all ranks learn of all damage."""
    with together("loading a checkpoint", manifest.folder):
        rank, size = dist.get_rank(), dist.get_world_size()
        problems = list(damage(manifest, names[rank::size]))
    found = sorted(problem for theirs in gathered(problems) for problem in theirs)
    if found:
        raise CheckpointError(found[0], hint=f"resume from another checkpoint in {manifest.folder.parent}")


def _restore_all(
    manifest: Manifest, models: Mapping[str, TrainState], parts: Mapping[str, Parts], here: Groups
) -> None:
    with ExitStack() as stack:
        with together("loading a checkpoint", manifest.folder):
            fillers = {}
            for role, model in models.items():
                files = {
                    part: stack.enter_context(TensorFiles([manifest.folder / name for name in names]))
                    for part, names in parts[role].items()
                }
                fillers[role] = Filler(role, model, here, files["weights"], files.get("optimizer"))
                fillers[role].check()
        for role, model in models.items():
            _restore(fillers[role], model, manifest.content["models"][role])


def _restore(filler: Filler, model: TrainState, saved: Mapping[str, Any]) -> None:
    optimizer = saved.get("optimizer", {})
    if model.optimizer is not None:
        model.optimizer.finish_param_sync()
    filler.fill(optimizer.get("step", 0))
    if model.optimizer is not None and filler.has_moments:
        state = OptimizerState(model.optimizer)
        state.lr, state.loss_scale = optimizer["lr"], optimizer["loss_scale"]
    if model.scheduler is not None:
        model.scheduler.load_state_dict(saved["scheduler"])
