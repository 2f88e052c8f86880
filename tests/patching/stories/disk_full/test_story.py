"""The disk takes no more while the new files are written."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mcore_compat import patching
from mcore_compat.errors import PatchError
from tests.patching.trees import ALPHA, PATCH, alpha, snapshot, tree_with


@contextmanager
def room_for(size: int) -> Iterator[None]:
    """Let no file grow beyond ``size`` bytes; the kernel refuses as it does on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("size", [0, 100, len(ALPHA) + 10])
def test_apply_leaves_the_tree_as_it_was(tmp_path: Path, size: int) -> None:
    tree = tree_with(tmp_path)
    before = snapshot(tree)
    with room_for(size), pytest.raises(PatchError, match="nothing was changed") as caught:
        patching.apply(tree, files=[PATCH])
    assert "make room" in caught.value.hint
    assert snapshot(tree) == before
    assert patching.status(tree).interrupted == ""


def test_revert_leaves_the_patch(tmp_path: Path) -> None:
    tree = tree_with(tmp_path)
    patching.apply(tree, files=[PATCH])
    before = snapshot(tree)
    with room_for(100), pytest.raises(PatchError, match="nothing was changed"):
        patching.revert(tree)
    assert snapshot(tree) == before
    assert patching.revert(tree).written
    assert alpha(tree) == ALPHA
