"""What is kept from one process to the next: used where nothing changed, and never in the way."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from mcore_compat.patching.kept import kept


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MCORE_COMPAT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "patched"


class Maker:
    """Counts how often it was asked."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> tuple[str, int]:
        self.calls += 1
        return "made", self.calls


def test_made_once_per_question(cache: Path) -> None:
    make = Maker()
    assert [kept(make, "a", None), kept(make, "a", None), kept(make, "a", ""), kept(make, "a")] == [
        ("made", 1),
        ("made", 1),
        ("made", 2),
        ("made", 3),
    ]
    assert len([*cache.iterdir()]) == 3


@pytest.mark.parametrize("damage", [b"", b"x", b"x" * 100])
def test_damaged_entry_is_made_anew(cache: Path, damage: bytes) -> None:
    make = Maker()
    kept(make, "a")
    [entry] = cache.iterdir()
    whole = entry.read_bytes()
    for data in (damage, whole[:-1], whole + b"x"):
        entry.write_bytes(data)
        assert kept(make, "a")[1] == make.calls
    assert make.calls == 4
    assert kept(make, "a")[1] == 4


def test_nothing_can_be_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make = Maker()
    (tmp_path / "file").touch()
    monkeypatch.setenv("MCORE_COMPAT_CACHE", str(tmp_path / "file"))
    assert [kept(make, "a"), kept(make, "a")] == [("made", 1), ("made", 2)]
    assert (tmp_path / "file").read_bytes() == b""


def test_old_entries_go(cache: Path) -> None:
    kept(Maker(), "a")
    kept(Maker(), "b")
    old, young = cache.iterdir()
    for entry, days in ((old, 31), (young, 29)):
        os.utime(entry, (0, time.time() - days * 24 * 3600))
    kept(Maker(), "new")
    assert (old.exists(), young.exists(), len([*cache.iterdir()])) == (False, True, 2)
