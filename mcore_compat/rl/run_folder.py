"""What a run leaves on disk. Every file is whole at any moment, also when the process is killed.

``config.yaml``      all settings of the run
``metrics.jsonl``    one object per step, written when the step is done
``tensorboard/``     the same numbers as TensorBoard events
``curves.png``       score, KL and losses over the steps
``actor/``           the trained policy as a Hugging Face folder
``checkpoints/``     what a resumed run goes on from, where ``trainer.save_freq`` asks for it
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mcore_compat.errors import ConfigError
from mcore_compat.rl.config import Config, TrainerConfig
from mcore_compat.rl.config_load import to_yaml

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from torch.utils.tensorboard import SummaryWriter

Steps = Sequence[Mapping[str, float]]
CHECKPOINTS = "checkpoints"
_METRICS = "metrics.jsonl"
# What a run that failed before its first step may have left; such a folder is used again.
_BEFORE_FIRST_STEP = {"config.yaml"}
# Title of each panel, and the metrics drawn in it where the run has them.
_PANELS = (
    ("score", ("critic/score/mean", "val/score/mean")),
    ("KL to the reference", ("critic/kl",)),
    ("policy", ("actor/pg_loss", "actor/entropy")),
    ("value loss", ("critic/vf_loss",)),
    ("gradient norm", ("actor/grad_norm", "critic/grad_norm")),
    ("response length", ("response_length/mean",)),
)


def resumed_from(trainer: TrainerConfig, folder: Path) -> Path | None:
    """The checkpoint, or folder of checkpoints, that a run in ``folder`` goes on from; ``None``: it starts anew."""
    if trainer.resume_from_path is not None:
        return Path(trainer.resume_from_path).expanduser()
    checkpoints = folder / CHECKPOINTS
    return checkpoints if trainer.resume_mode == "auto" and any(checkpoints.glob("step-*")) else None


def choose_folder(wanted: str | None, experiment_name: str, trainer: TrainerConfig | None = None) -> Path:
    """Where a run may write.

    Args:
        wanted: A folder that is absent or empty (or holds what a run left that failed before its first step).
        experiment_name: Without ``wanted``: ``runs/<name>``, else ``runs/<name>-2`` and so on.
        trainer: Settings of a run that may be resumed: ``wanted`` may hold what it goes on from.

    Raises:
        ConfigError: ``wanted`` holds something.
    """
    if wanted is None:
        return _next_free(Path("runs") / experiment_name)
    folder = Path(wanted).expanduser()
    source = None if trainer is None else resumed_from(trainer, folder)
    goes_on = source is not None and source.resolve().is_relative_to(folder.resolve())
    if not (goes_on or _is_free(folder)):
        raise ConfigError(
            f"The run folder {folder} is not empty; a run overwrites nothing",
            hint=f"trainer.default_local_dir={_next_free(folder)}",
        )
    return folder


class RunFolder:
    """Writer of a run folder. Every rank may hold one; only rank 0 calls its methods.

    Args:
        path: The folder.
        config: Settings of the run.
    """

    def __init__(self, path: Path, config: Config) -> None:
        self.path = path
        self._config = config
        self._first = 0
        self._events: SummaryWriter | None = None

    def open(self, first_step: int = 0) -> list[dict[str, float]]:
        """Make the folder and write the settings.

        Args:
            first_step: Where the run goes on; later steps, which were not saved, are taken out of ``metrics.jsonl``.

        Returns:
            Metrics of the steps before.

        Raises:
            ConfigError: It cannot be written to.
        """
        self._first = first_step
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            text = to_yaml(self._config)
            write_whole(self.path / "config.yaml", lambda file: file.write_text(text, encoding="utf-8"))
            return self._steps_before(first_step)
        except OSError as error:
            raise ConfigError(f"The run folder cannot be written: {error}") from error

    def add_step(self, step: int, metrics: Mapping[str, float]) -> None:
        """Append one step to ``metrics.jsonl`` and the events, and hand both to the operating system."""
        line = _line({"step": step, **metrics})
        # One write call of a whole line: a killed process leaves no half line.
        with (self.path / _METRICS).open("ab", buffering=0) as file:
            file.write(line.encode())
        if "tensorboard" in self._config.trainer.logger:
            self._add_events(step, metrics)

    def close(self, steps: Steps) -> None:
        """Draw the curves and close the events."""
        if self._events is not None:
            self._events.close()
        if steps:
            write_whole(self.path / "curves.png", lambda file: draw_curves(steps, file))

    def _steps_before(self, first_step: int) -> list[dict[str, float]]:
        file = self.path / _METRICS
        if not file.exists():
            return []
        lines = [
            line for line in file.read_text(encoding="utf-8").splitlines() if json.loads(line)["step"] < first_step
        ]
        write_whole(file, lambda fresh: fresh.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8"))
        return [{name: value for name, value in json.loads(line).items() if name != "step"} for line in lines]

    def _add_events(self, step: int, metrics: Mapping[str, float]) -> None:
        if self._events is None:
            from torch.utils.tensorboard import SummaryWriter

            self._events = SummaryWriter(str(self.path / "tensorboard"), purge_step=self._first or None)
        for name, value in metrics.items():
            self._events.add_scalar(name, value, step)
        self._events.flush()


def _line(step: Mapping[str, float]) -> str:
    return json.dumps(step) + "\n"


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Let ``write`` fill a temporary file and put it in place in one move."""
    temporary = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")
    try:
        write(temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def draw_curves(steps: Steps, file: Path) -> None:
    """Draw the panels of a run as a PNG image."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 6), layout="constrained")
    FigureCanvasAgg(figure)
    for axes, (title, names) in zip(figure.subplots(2, 3).flat, _PANELS, strict=True):
        _draw_panel(axes, title, [name for name in names if any(name in step for step in steps)], steps)
    figure.savefig(file, dpi=110)


def _draw_panel(axes: Axes, title: str, names: Sequence[str], steps: Steps) -> None:
    for name in names:
        points = [(number, step[name]) for number, step in enumerate(steps) if name in step]
        axes.plot([x for x, _ in points], [y for _, y in points], marker=".", label=name)
    axes.set_title(title)
    axes.set_xlabel("step")
    axes.grid(alpha=0.3)
    if names:
        axes.legend(fontsize=8)


def _is_free(folder: Path) -> bool:
    if not folder.exists():
        return True
    return folder.is_dir() and {item.name for item in folder.iterdir()} <= _BEFORE_FIRST_STEP


def _next_free(folder: Path) -> Path:
    number, candidate = 1, folder
    while not _is_free(candidate):
        number += 1
        candidate = folder.with_name(f"{folder.name}-{number}")
    return candidate
