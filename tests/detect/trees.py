"""Small source trees that look like a Megatron from outside; nothing imports them."""

from __future__ import annotations

from pathlib import Path

PACKAGE_INFO = """
MAJOR = {major}
MINOR = 3
PATCH = 0
PRE_RELEASE = 'rc1'
__package_name__ = '{package}'
"""


def write_tree(root: Path, files: dict[str, str]) -> Path:
    """Write the files under ``root`` and return it."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


def checkout(
    root: Path, *, major: int = 0, package: str = "megatron_core", files: dict[str, str] | None = None
) -> Path:
    """A tree that claims to be release MAJOR.3.0rc1."""
    info = PACKAGE_INFO.format(major=major, package=package)
    return write_tree(root, {"megatron/core/__init__.py": "", "megatron/core/package_info.py": info, **(files or {})})
