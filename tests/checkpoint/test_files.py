"""The folder: whole or not there; what is damaged is refused by name."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from mcore_compat.checkpoint.files import LATEST, MANIFEST, Draft, damage, latest, read_manifest
from mcore_compat.errors import CheckpointError

FILES = {"actor/weights/000-00000.safetensors": b"weights", "rng/00000.safetensors": b"dice" * 1000}
# What changes a file system, as audit hooks are told.
EVENTS = ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir")


def write(root: Path, step: int, keep: int | None = None) -> Path:
    draft = Draft(root, step)
    draft.begin()
    files = {}
    for name, data in FILES.items():
        files |= draft.write(name, data + str(step).encode())
    return draft.finish(files, {"step": step}, keep)


def step_of(root: Path) -> int:
    """The step of the newest checkpoint, every file of which is as written."""
    folder = latest(root)
    assert folder is not None
    manifest = read_manifest(folder)
    assert list(damage(manifest, list(manifest.files))) == []
    assert set(manifest.files) == set(FILES)
    step = manifest.content["step"]
    assert isinstance(step, int)
    return step


def names(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir())


def test_the_newest_is_found_and_older_ones_stay_as_asked(tmp_path: Path) -> None:
    assert latest(tmp_path) is None
    for step in (1, 2, 10):
        assert write(tmp_path, step) == latest(tmp_path) == tmp_path / f"step-{step}"
    assert names(tmp_path) == ["latest", "step-1", "step-10", "step-2"]
    assert latest(tmp_path / "step-2") == tmp_path / "step-2"
    write(tmp_path, 11, keep=2)
    assert names(tmp_path) == ["latest", "step-10", "step-11"]


def test_a_step_saved_again_replaces_the_first_save(tmp_path: Path) -> None:
    for _ in range(2):
        write(tmp_path, 1)
        assert step_of(tmp_path) == 1
    assert len(names(tmp_path)) == 2


def killed_at(event: int, work: Callable[[], object]) -> bool:
    """Do the work in a child that kills itself (SIGKILL) right before that file-system event; whether it got there."""
    child = os.fork()
    if child == 0:
        import sys

        left = event

        def count(name: str, arguments: tuple[object, ...]) -> None:
            nonlocal left
            if name in EVENTS:
                left -= 1
                if left < 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(count)
        work()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert status in (0, signal.SIGKILL)
    return status == signal.SIGKILL


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_fifty_saves_killed_at_every_moment_lose_nothing(tmp_path: Path) -> None:
    write(tmp_path, 0)
    good, killed, finished = 0, 0, 0
    for number in range(1, 51):
        # Each third one saves its step a second time, which moves the first save out of the way.
        step = good if number % 3 == 0 else number
        if killed_at(number, lambda step=step: write(tmp_path, step, keep=2)):  # type: ignore[misc]
            killed += 1
        else:
            finished += 1
        assert step_of(tmp_path) in {good, step}
        good = step_of(tmp_path)
    assert killed > 20
    assert finished > 0
    write(tmp_path, 100, keep=1)
    assert names(tmp_path) == ["latest", "step-100"]


def test_killed_before_the_first_pointer_the_first_save_is_found(tmp_path: Path) -> None:
    write(tmp_path, 1)
    (tmp_path / LATEST).unlink()
    assert step_of(tmp_path) == 1


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("harm", ["flip", "cut", "remove"])
def test_a_damaged_file_is_named(tmp_path: Path, name: str, harm: str) -> None:
    path = write(tmp_path, 1) / name
    data = path.read_bytes()
    if harm == "remove":
        path.unlink()
    else:
        path.write_bytes(data[:-1] if harm == "cut" else bytes([data[0] ^ 1]) + data[1:])
    (problem,) = damage(read_manifest(path.parents[len(Path(name).parents) - 1]), list(FILES))
    assert str(path) in problem


def test_a_part_that_is_half_there_is_damage_and_an_absent_one_is_not(tmp_path: Path) -> None:
    draft = Draft(tmp_path, 1)
    draft.begin()
    files = {**draft.write("actor/weights/0", b"0"), **draft.write("actor/weights/1", b"1")}
    folder = draft.finish(files, {}, None)
    manifest = read_manifest(folder)
    assert manifest.part("actor/weights") == ["actor/weights/0", "actor/weights/1"]
    assert manifest.part("critic/weights") == []
    (folder / "actor/weights/0").unlink()
    with pytest.raises(CheckpointError, match="weights/0"):
        manifest.part("actor/weights")
    (folder / "actor/weights/1").unlink()
    assert manifest.part("actor/weights") == []


def test_a_changed_manifest_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, 1) / MANIFEST
    written = json.loads(path.read_text())
    for text in ("", "[]", "{}", path.read_text()[:-5]):
        path.write_text(text)
        with pytest.raises(CheckpointError, match=MANIFEST):
            read_manifest(path.parent)
    written["content"]["step"] = 2
    path.write_text(json.dumps(written))
    with pytest.raises(CheckpointError, match=r"manifest\.json: its content is not what was written"):
        read_manifest(path.parent)


@pytest.mark.parametrize("text", ["", "step-9", "../elsewhere", "step-1/rng"])
def test_a_pointer_to_nothing_is_refused(tmp_path: Path, text: str) -> None:
    write(tmp_path, 1)
    (tmp_path / LATEST).write_text(text)
    with pytest.raises(CheckpointError, match="latest"):
        latest(tmp_path)


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    draft = Draft(tmp_path, 1)
    draft.begin()
    folder = draft.finish({}, {"format": 2}, None)
    with pytest.raises(CheckpointError, match="format 2"):
        read_manifest(folder)
