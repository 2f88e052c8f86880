"""Runs probes on a release as it is and on a patched copy of it, each in a fork of one process that has torch."""

from __future__ import annotations

import multiprocessing
import os
import sys
from typing import Literal
from unittest import mock

import torch
from torch.testing._internal.distributed.fake_pg import FakeStore

import mcore_compat
from mcore_compat.runtime.repairs import REPAIRS
from tests.launch import free_port
from tests.patching import probes

# bare: nothing is prepared. one: a layout of one rank. The others: of two, one here, and collectives that do nothing.
World = Literal["bare", "one", "cp 2", "dp 2"]
Found = dict[str, object]


def compare(roots: list[str], wanted: dict[World, list[str]]) -> list[Found]:
    """What each probe found in each tree; the name of the exception where one was raised."""
    return [
        {name: found for world, names in wanted.items() for name, found in _in_a_fork(root, world, names).items()}
        for root in roots
    ]


def _in_a_fork(root: str, world: World, names: list[str]) -> Found:
    with multiprocessing.get_context("fork").Pool(1) as pool:
        return pool.apply(_run, (root, world, names))


def _run(root: str, world: World, names: list[str]) -> Found:
    sys.path.insert(0, root)
    if world != "bare":
        _prepare()
        _start(world)
    return {name: _outcome(name) for name in names}


def _prepare() -> None:
    # Norms are no defect that a patch mends, and no model can be built without them.
    norms = [row for row in REPAIRS if "Norm" in row.names]
    with mock.patch("mcore_compat.runtime.session.REPAIRS", norms):
        mcore_compat.prepare("cpu")


def _start(world: World) -> None:
    if world == "one":
        os.environ["MASTER_PORT"] = str(free_port())
        mcore_compat.init_parallel()
        mcore_compat.seed(1)
        return
    from megatron.core import parallel_state

    whole = torch.distributed.new_group
    torch.distributed.new_group = lambda *args, **kwargs: whole(*args, **{**kwargs, "backend": "fake"})
    torch.distributed.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    parallel_state.initialize_model_parallel(context_parallel_size=2 if world == "cp 2" else 1)


def _outcome(name: str) -> object:
    try:
        return getattr(probes, name)()
    except Exception as error:
        return type(error).__name__
