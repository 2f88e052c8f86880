"""Where a Megatron is found, and what is read of its claims."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mcore_compat.detect import find
from mcore_compat.errors import MegatronNotFound
from mcore_compat.matrix.overlay import overlay
from tests.detect.trees import checkout, write_tree


def git(folder: Path, *arguments: str) -> str:
    who = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    done = subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = checkout(tmp_path / "repository")
    git(root, "init", "--quiet")
    git(root, "add", ".")
    git(root, "commit", "--quiet", "-m", "one")
    return root


@pytest.fixture(autouse=True)
def nothing_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is imported already is found first; here the path is meant."""
    monkeypatch.delitem(sys.modules, "megatron.core", raising=False)


def test_release_says_what_it_is(release: str) -> None:
    root = overlay(release)
    found = find(root)
    assert (found.root, found.kind, found.version, found.distribution) == (root, "unpacked", release, release)
    assert found.commit is None


@pytest.mark.parametrize("inside", ["", "megatron", "megatron/core"])
def test_root_may_be_named_from_inside(tmp_path: Path, inside: str) -> None:
    assert find(checkout(tmp_path) / inside).root == tmp_path


def test_version_with_prerelease_is_read(tmp_path: Path) -> None:
    assert find(checkout(tmp_path)).version == "0.3.0rc1"


def test_version_falls_back_to_the_distribution(tmp_path: Path) -> None:
    write_tree(tmp_path, {"megatron/core/__init__.py": "", "megatron_core-0.2.0.dist-info/METADATA": ""})
    assert find(tmp_path).version == "0.2.0"


def test_no_claim_is_no_version(tmp_path: Path) -> None:
    assert find(write_tree(tmp_path, {"megatron/core/__init__.py": ""})).version is None


def test_installed_wheel(tmp_path: Path) -> None:
    root = checkout(tmp_path / "site-packages", files={"megatron_core-0.3.0rc1.dist-info/METADATA": ""})
    assert find(root).kind == "wheel"


def test_other_package_name_is_a_fork(tmp_path: Path) -> None:
    assert find(checkout(tmp_path, package="megatron_core_of_us")).kind == "fork"


@pytest.mark.parametrize("place", ["", "megatron/core/deeper"])
def test_nothing_there_is_an_error_with_a_hint(tmp_path: Path, place: str) -> None:
    if place:
        checkout(tmp_path)
    (tmp_path / place).mkdir(parents=True, exist_ok=True)
    with pytest.raises(MegatronNotFound, match="found no megatron/core") as caught:
        find(tmp_path / place)
    assert caught.value.hint


def test_commit_of_a_branch(repository: Path) -> None:
    found = find(repository)
    assert (found.kind, found.commit) == ("checkout", git(repository, "rev-parse", "HEAD"))


def test_commit_of_packed_refs(repository: Path) -> None:
    git(repository, "pack-refs", "--all")
    assert find(repository).commit == git(repository, "rev-parse", "HEAD")


def test_commit_of_a_detached_head(repository: Path) -> None:
    git(repository, "checkout", "--quiet", "--detach")
    assert find(repository).commit == git(repository, "rev-parse", "HEAD")


def test_commit_of_a_linked_work_tree(repository: Path, tmp_path: Path) -> None:
    git(repository, "worktree", "add", "--quiet", "-b", "other", str(tmp_path / "linked"))
    git(tmp_path / "linked", "commit", "--quiet", "--allow-empty", "-m", "two")
    assert find(tmp_path / "linked").commit == git(tmp_path / "linked", "rev-parse", "HEAD")


def test_path_is_searched_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tree(tmp_path / "unrelated", {"megatron/energon/__init__.py": ""})
    for name in ("second", "first"):
        monkeypatch.syspath_prepend(checkout(tmp_path / name))
    monkeypatch.syspath_prepend(tmp_path / "unrelated")
    assert find().root == tmp_path / "first"


def test_regular_package_wins_wherever_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(checkout(tmp_path / "regular", files={"megatron/__init__.py": ""}))
    monkeypatch.syspath_prepend(checkout(tmp_path / "namespace"))
    assert find().root == tmp_path / "regular"


def test_shadow_without_core_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(write_tree(tmp_path, {"megatron/__init__.py": ""}))
    with pytest.raises(MegatronNotFound, match=r"which has no megatron\.core") as caught:
        find()
    assert str(tmp_path) in str(caught.value)
