"""Runs test programs in real processes with one Megatron-Core release in front.

A test names what runs. ``module:function`` is called in every rank with the given JSON-able arguments,
and what it returns is the rank's result; these ranks are forks of a process that has torch already
(``tests.forks``). A script ``….py`` or a module is started as ``python`` or
``python -m`` does, with the arguments as strings; its result is the JSON it writes to the file that
``$MCORE_COMPAT_RESULT`` names::

    norms = run_ranks("tests.contract.programs.train:grad_norms", "fp32", release="0.6.0", nproc=2)
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.forks import Fork, fork

ROOT = Path(__file__).resolve().parents[1]
RESULT = "MCORE_COMPAT_RESULT"
TAIL_LINES = 40
Process = subprocess.Popen[bytes] | Fork
# A rank whose peer is gone may still have to say so itself; longer than this it only hangs.
GRACE_SECONDS = 15.0


@dataclass(frozen=True)
class Outcome:
    """How one rank ended.

    Attributes:
        rank: Global rank.
        returncode: Exit status; negative: the signal that ended it.
        stopped: Whether it had to be stopped, because time ran out or a peer failed.
        stdout: All it printed.
        stderr: All it printed there.
        result: What it wrote as JSON, ``None`` where it wrote nothing.
    """

    rank: int
    returncode: int
    stopped: bool
    stdout: str
    stderr: str
    result: Any

    def __str__(self) -> str:
        how = f"exit {self.returncode}" + (" (stopped)" if self.stopped else "")
        tail = "\n".join((self.stdout + self.stderr).splitlines()[-TAIL_LINES:])
        return f"--- rank {self.rank}: {how}\n{tail}"


def run_ranks(
    target: str | Path,
    *args: object,
    release: str | None,
    nproc: int = 1,
    timeout: float = 120,
    env: Mapping[str, str] | None = None,
) -> list[Any]:
    """Run ``target`` in ``nproc`` ranks and return what each of them wrote, in rank order.

    Args:
        target: ``module:function``, a script's path or a module.
        args: JSON-able values for a function, else anything with a text form.
        release: Megatron-Core release that is put in front; ``None``: the one that is installed.
        nproc: Number of ranks.
        timeout: Seconds until all ranks are stopped.
        env: Additional environment variables.

    Raises:
        AssertionError: A rank failed or time ran out; the text holds the end of what each such rank printed.
    """
    outcomes = launch(target, *args, release=release, nproc=nproc, timeout=timeout, env=env)
    failed = [outcome for outcome in outcomes if outcome.returncode != 0]
    if failed:
        what = f"{target} {args} on Megatron-Core {release or '(installed)'}, {nproc} rank(s), {timeout:g} s"
        raise AssertionError("\n".join([f"{len(failed)} rank(s) failed: {what}", *map(str, failed)]))
    return [outcome.result for outcome in outcomes]


def launch(
    target: str | Path,
    *args: object,
    release: str | None,
    nproc: int = 1,
    timeout: float = 120,
    env: Mapping[str, str] | None = None,
) -> list[Outcome]:
    """As :func:`run_ranks`, but return how each rank ended, for tests in which ranks are meant to fail."""
    common = {**release_environment(release), **_rendezvous(nproc), **(env or {})}
    with tempfile.TemporaryDirectory(prefix="ranks-") as name:
        folder = Path(name)
        ranks = [_start(target, args, common, rank, folder) for rank in range(nproc)]
        try:
            stopped = _wait(ranks, timeout)
        finally:
            _kill(ranks)
        return [_outcome(process, rank, folder, rank in stopped) for rank, process in enumerate(ranks)]


def release_environment(release: str | None) -> dict[str, str]:
    """Environment of a process that sees ``release`` before any other Megatron, and the tests."""
    front = [] if release is None else [str(_overlay(release))]
    inherited = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    path = os.pathsep.join([*front, str(ROOT), *inherited])
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "PYTHONFAULTHANDLER": "1"}


def _overlay(release: str) -> Path:
    # Not at the top: this module also starts in each rank, where the program decides what is imported when.
    from mcore_compat.matrix.overlay import overlay

    return overlay(release)


def free_port() -> int:
    """A loopback TCP port that nobody listens on, below those that systems give to connections in the meantime."""
    with socket.socket() as probe, contextlib.suppress(OSError):
        probe.bind(("127.0.0.1", port := 10_000 + secrets.randbelow(22_000)))
        return port
    return free_port()


def _rendezvous(nproc: int) -> dict[str, str]:
    return {
        "WORLD_SIZE": str(nproc),
        "LOCAL_WORLD_SIZE": str(nproc),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
    }


def _start(target: str | Path, args: tuple[object, ...], common: Mapping[str, str], rank: int, folder: Path) -> Process:
    env = {**common, "RANK": str(rank), "LOCAL_RANK": str(rank), RESULT: str(folder / f"{rank}.json")}
    stdout, stderr = folder / f"{rank}.out", folder / f"{rank}.err"
    if isinstance(target, str) and ":" in target:
        return fork([target, json.dumps(args)], cwd=folder, env=env, stdout=stdout, stderr=stderr)
    front = [str(Path(target).absolute())] if str(target).endswith(".py") else ["-m", str(target)]
    with stdout.open("wb") as out, stderr.open("wb") as err:
        return subprocess.Popen(
            [sys.executable, *front, *map(str, args)],
            cwd=folder,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )


def _wait(ranks: list[Process], timeout: float) -> set[int]:
    """Wait for all ranks; return those still running when time, or the grace after a failure, was over."""
    deadline = time.monotonic() + timeout
    failure_seen = False
    while running := {rank for rank, process in enumerate(ranks) if process.poll() is None}:
        if not failure_seen and any(process.returncode for process in ranks):
            failure_seen, deadline = True, min(deadline, time.monotonic() + GRACE_SECONDS)
        if time.monotonic() > deadline:
            _abort([ranks[rank] for rank in running])
            return running
        time.sleep(0.02)
    return set()


def _abort(processes: list[Process]) -> None:
    """Stop with SIGABRT, on which Python's fault handler prints where every thread was."""
    for process in processes:
        _signal(process, signal.SIGABRT)
    for process in processes:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=5)


def _kill(processes: list[Process]) -> None:
    for process in processes:
        if process.poll() is None:
            _signal(process, signal.SIGKILL)
            process.wait()


def _signal(process: Process, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def _outcome(process: Process, rank: int, folder: Path, stopped: bool) -> Outcome:
    written = folder / f"{rank}.json"
    return Outcome(
        rank=rank,
        returncode=process.returncode,
        stopped=stopped,
        stdout=(folder / f"{rank}.out").read_text(errors="replace"),
        stderr=(folder / f"{rank}.err").read_text(errors="replace"),
        result=json.loads(written.read_text()) if written.exists() and process.returncode == 0 else None,
    )


def call(target: str, arguments: str) -> None:
    """Call ``module:function`` with the JSON list ``arguments``; write what it returns to ``$MCORE_COMPAT_RESULT``."""
    module, _, name = target.partition(":")
    result = getattr(importlib.import_module(module), name)(*json.loads(arguments))
    Path(os.environ[RESULT]).write_text(json.dumps(result))
    _leave_together()


def _leave_together() -> None:
    """Wait for the other ranks: rank 0 holds the store that one of them may still ask."""
    import torch

    if torch.distributed.is_initialized():
        with contextlib.suppress(RuntimeError):  # a peer has failed and is gone
            torch.distributed.barrier()
