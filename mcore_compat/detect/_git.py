"""The commit a checkout is at, read from its .git without a subprocess."""

from __future__ import annotations

from pathlib import Path


def head_commit(root: Path) -> str | None:
    """Commit that HEAD of ``root`` points at; ``None`` where ``root`` is no work tree."""
    folder = _git_folder(root / ".git")
    head = _read(folder / "HEAD") if folder else None
    if folder is None or head is None:
        return None
    if not head.startswith("ref: "):
        return head
    ref = head.removeprefix("ref: ")
    common = (folder / (_read(folder / "commondir") or ".")).resolve()
    return _read(folder / ref) or _read(common / ref) or _packed(common / "packed-refs", ref)


def _git_folder(path: Path) -> Path | None:
    if path.is_dir():
        return path
    text = _read(path) or ""
    if not text.startswith("gitdir: "):
        return None
    # A linked work tree or a submodule: .git is a file that names the real folder.
    return (path.parent / text.removeprefix("gitdir: ")).resolve()


def _packed(path: Path, ref: str) -> str | None:
    lines = (_read(path) or "").splitlines()
    return next((line.partition(" ")[0] for line in lines if line.partition(" ")[2] == ref), None)


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return None
