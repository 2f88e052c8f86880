"""Trees to patch, and what they hold."""

from __future__ import annotations

import stat
from pathlib import Path

from mcore_compat.patching import Report
from tests.detect.trees import checkout

STORIES = Path(__file__).with_name("stories")
# Adds four in two places of megatron/core/alpha.py.
PATCH = STORIES / "add-four.yaml"
ALPHA = (STORIES / "alpha.txt").read_text(encoding="utf-8")
PATCHED = (STORIES / "patched.txt").read_text(encoding="utf-8")
PATH = "megatron/core/alpha.py"

Snapshot = dict[str, tuple[bytes, int]]


def tree_with(root: Path, text: str = ALPHA, **more: str) -> Path:
    """A tree whose ``alpha.py`` holds ``text``; line endings are written as they are."""
    checkout(root, files={f"megatron/core/{name}.py": content for name, content in more.items()})
    (root / PATH).write_bytes(text.encode())
    return root


def alpha(root: Path) -> str:
    """What ``alpha.py`` holds, line endings as they are."""
    return (root / PATH).read_bytes().decode()


def snapshot(root: Path) -> Snapshot:
    """Content and mode of every file."""
    return {
        str(path.relative_to(root)): (path.read_bytes(), stat.S_IMODE(path.stat().st_mode))
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def states(report: Report) -> list[str]:
    """The state of each patch."""
    return [result.state for result in report.results]
