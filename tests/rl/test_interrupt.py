from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from mcore_compat.errors import PeerLost
from mcore_compat.rl.interrupt import StopRequest, peer_loss, stop_on_signal
from tests.launch import ROOT

LOST_PEER = """
import os, sys, torch
import torch.distributed as dist
from mcore_compat.errors import PeerLost
from mcore_compat.rl.interrupt import peer_loss

rank, store = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
dist.all_reduce(torch.ones(1))
if rank == 1:
    os._exit(7)
try:
    with peer_loss():
        for _ in range(100):
            dist.all_reduce(torch.ones(1))
except PeerLost as error:
    print("PEER", error)
    os._exit(3)
"""


def test_the_first_signal_asks_and_the_second_interrupt_ends() -> None:
    before = signal.getsignal(signal.SIGINT)
    with stop_on_signal(announce=False) as stop:
        assert not stop.requested
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.requested
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_a_second_sigterm_changes_nothing() -> None:
    stop = StopRequest()
    stop.ask(signal.SIGTERM, None)
    stop.ask(signal.SIGTERM, None)
    assert stop.requested


def test_other_runtime_errors_pass_through() -> None:
    with pytest.raises(RuntimeError, match="shapes differ"), peer_loss():
        raise RuntimeError("shapes differ")


def test_gloo_timeouts_are_a_lost_peer() -> None:
    with pytest.raises(PeerLost, match="Timed out waiting"), peer_loss():
        raise RuntimeError("[gloo] Timed out waiting 1000ms for recv operation to complete")


def test_a_rank_that_dies_is_one_clear_error_on_the_other(tmp_path: os.PathLike[str]) -> None:
    command = [sys.executable, "-c", LOST_PEER]
    arguments = [[str(rank), os.path.join(tmp_path, "store")] for rank in range(2)]
    start = time.monotonic()
    ranks = [
        subprocess.Popen([*command, *args], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for args in arguments
    ]
    output, errors = ranks[0].communicate(timeout=120)
    ranks[1].communicate(timeout=120)
    assert (ranks[0].returncode, ranks[1].returncode) == (3, 7), errors
    assert output.startswith("PEER Another rank stopped")
    assert time.monotonic() - start < 60
