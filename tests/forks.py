"""Processes forked from one that has imported torch already: what a rank costs is that import, not its work.

``python -m tests.forks`` is that process. It reads one JSON request a line: arguments of ``tests.launch.call``,
environment, folder and output files of a child; it answers ``start PID`` and, when a child has ended, ``end PID
WAITSTATUS``. Megatron, its stand-ins and process groups come into being in the child only.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
# What every Megatron release imports besides itself.
PRELOADED = ("torch._dynamo", "torch._inductor.compile_fx", "torch.distributed", "torch.utils.tensorboard")


class Fork:
    """The part of ``subprocess.Popen`` that the launcher needs, for a child of the forking process."""

    def __init__(self, server: _Server, pid: int) -> None:
        self._server = server
        self.pid = pid

    @property
    def returncode(self) -> int | None:
        """Exit status, negative for a signal; ``None`` while it runs."""
        return self._server.ended.get(self.pid)

    def poll(self) -> int | None:
        """As ``returncode``."""
        return self.returncode

    def wait(self, timeout: float = 30) -> int:
        """Wait for the end.

        Raises:
            subprocess.TimeoutExpired: It runs on.
        """
        deadline = time.monotonic() + timeout
        while (status := self.returncode) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(f"fork {self.pid}", timeout)
            time.sleep(0.01)
        return status


def fork(argv: list[str], *, cwd: Path, env: Mapping[str, str], stdout: Path, stderr: Path) -> Fork:
    """Run ``tests.launch.call(*argv)`` in a process, and session, of its own."""
    request = {"argv": argv, "cwd": str(cwd), "env": dict(env), "stdout": str(stdout), "stderr": str(stderr)}
    return _server().start(request)


class _Server:
    def __init__(self) -> None:
        self.ended: dict[int, int] = {}
        self._started: list[int] = []
        self._changed = threading.Condition()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.forks"],
            cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONFAULTHANDLER": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        threading.Thread(target=self._listen, daemon=True).start()

    def start(self, request: dict[str, Any]) -> Fork:
        assert self._process.stdin is not None
        with self._changed:
            print(json.dumps(request), file=self._process.stdin, flush=True)
            if not self._changed.wait_for(lambda: self._started, timeout=60):
                raise AssertionError("the process that forks the ranks does not answer")
            return Fork(self, self._started.pop())

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            what, pid, *status = line.split()
            with self._changed:
                if what == "start":
                    self._started.append(int(pid))
                else:
                    self.ended[int(pid)] = os.waitstatus_to_exitcode(int(*status))
                self._changed.notify_all()


@cache
def _server() -> _Server:
    return _Server()


# Of the forking process: its children that have not ended.
_running: set[int] = set()


def _serve() -> None:
    """Fork until whoever asks for it is gone, and then leave no rank behind."""
    for name in PRELOADED:
        importlib.import_module(name)
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    try:
        _answer(woken)
    finally:
        for pid in _running:
            for kill in (os.killpg, os.kill):  # whether it leads a session by now or not
                with contextlib.suppress(ProcessLookupError):
                    kill(pid, signal.SIGKILL)


def _answer(woken: int) -> None:
    with contextlib.suppress(BrokenPipeError):
        while True:
            ready, _, _ = select.select([sys.stdin, woken], [], [])
            if woken in ready:
                os.read(woken, 4096)
                _report()
            if sys.stdin in ready:
                line = sys.stdin.readline()
                if not line:
                    return
                _fork(json.loads(line))


def _report() -> None:
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            _running.discard(ended[0])
            print("end", *ended, flush=True)


def _fork(request: dict[str, Any]) -> None:
    pid = os.fork()
    if pid:
        _running.add(pid)
        print("start", pid, flush=True)
        return
    status = 1
    try:
        _become(request)
        from tests.launch import call

        call(*request["argv"])
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def _become(request: dict[str, Any]) -> None:
    """Be as a Python that was started with this environment, in this folder."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    os.chdir(request["cwd"])
    for path, target in ((os.devnull, 0), (request["stdout"], 1), (request["stderr"], 2)):
        os.dup2(os.open(path, os.O_RDWR | os.O_CREAT, 0o644), target)
    os.environ.clear()
    os.environ.update(request["env"])
    front = [entry for entry in request["env"].get("PYTHONPATH", "").split(os.pathsep) if entry]
    sys.path[:] = [request["cwd"], *front, *(entry for entry in sys.path[1:] if entry not in front)]


if __name__ == "__main__":
    _serve()
