"""What ``train`` and ``demo`` share: the engine, signals, progress, and the result on stdout."""

from __future__ import annotations

import json
import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

import click

from mcore_compat.errors import EnvironmentMismatch

if TYPE_CHECKING:
    from mcore_compat.contracts import TrainingBackend
    from mcore_compat.rl.config import Config
    from mcore_compat.rl.interrupt import StopRequest
    from mcore_compat.rl.progress import Talk
    from mcore_compat.rl.report import Report

_NEEDED = ("torch", "omegaconf", "transformers", "safetensors", "matplotlib", "tensorboard", "pyarrow")
# 128 + SIGINT, what a shell reports for a program that Ctrl-C ended.
INTERRUPTED = 130


def world_size() -> int:
    """Number of ranks, as torchrun says."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_rank_zero() -> bool:
    """Whether this process is the one that talks."""
    return os.environ.get("RANK", "0") == "0"


def require_packages() -> None:
    """Raise :class:`EnvironmentMismatch` where the ``rl`` extra is not installed."""
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise EnvironmentMismatch(
            f"Training needs packages that are not installed: {', '.join(missing)}",
            hint="pip install 'mcore-compat[megatron,rl,cli]'",
        )


def make_backend(config: Config) -> TrainingBackend:
    """Start Megatron as the settings say."""
    from mcore_compat.bridge import MegatronBackend
    from mcore_compat.rl.config_resolve import data_parallel_settings, layout

    megatron = config.actor_rollout_ref.actor.megatron
    return MegatronBackend(
        layout(config),
        device=config.trainer.device,
        precision=config.trainer.precision,
        seed=megatron.seed,
        sequence_parallel=megatron.sequence_parallel,
        data_parallel=data_parallel_settings(config),
    )


def run_job(job: Callable[[Talk, StopRequest], Report], *, as_json: bool) -> None:
    """Run a job under signal handling and print its result on rank 0; exits with 130 after a signal.

    Args:
        job: Does the work.
        as_json: Print one JSON object, else lines for people.
    """
    from mcore_compat.rl.interrupt import stop_on_signal

    try:
        with _quiet_upstream(), _talk() as talk, stop_on_signal(announce=is_rank_zero()) as stop:
            report = job(talk, stop)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    if is_rank_zero():
        click.echo(json.dumps(report.as_json()) if as_json else "\n".join(report.lines()))
    if report.interrupted:
        sys.exit(INTERRUPTED)


@contextmanager
def _quiet_upstream() -> Iterator[None]:
    """Leave out what Megatron and torch say about themselves; their errors still come through."""
    logger = logging.getLogger("megatron")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module=r"megatron\.|torch\.")
            yield
    finally:
        logger.setLevel(level)


@contextmanager
def _talk() -> Iterator[Talk]:
    from mcore_compat.rl.progress import Bar, Lines, Silent

    if not is_rank_zero():
        yield Silent()
    elif sys.stderr.isatty():
        with Bar() as bar:
            yield bar
    else:
        yield Lines()
