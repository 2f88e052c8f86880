"""Locate a Megatron and read what it claims about itself, without importing it."""

from __future__ import annotations

import ast
import site
import sys
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Literal

from mcore_compat.detect._git import head_commit
from mcore_compat.errors import MegatronNotFound

Kind = Literal["wheel", "checkout", "fork", "unpacked"]
PACKAGE_NAMES = {"megatron_core", "megatron-core"}
INSTALL_HINT = "pip install 'mcore-compat[megatron]', or put a Megatron-LM checkout on PYTHONPATH"


class UnverifiedRelease(UserWarning):
    """The Megatron that is there claims a version newer than every release of the table."""


@dataclass(frozen=True)
class Megatron:
    """A Megatron on disk.

    Attributes:
        root: Directory that holds ``megatron/``.
        kind: ``wheel`` (installed), ``unpacked`` (a wheel's files elsewhere), ``checkout`` (a source tree) or
            ``fork`` (its ``package_info`` names another package).
        version: What it claims; a hint only, no decision reads it.
        commit: Git commit of a checkout.
        distribution: Version in the ``dist-info`` folder beside it.
    """

    root: Path
    kind: Kind
    version: str | None
    commit: str | None = None
    distribution: str | None = None

    def __str__(self) -> str:
        claim = f"claims {self.version}" if self.version else "claims no version"
        commit = f", commit {self.commit[:12]}" if self.commit else ""
        return f"{self.root} ({self.kind}, {claim}{commit})"


def find(root: Path | None = None) -> Megatron:
    """Find the Megatron at ``root``, or the one that ``import megatron.core`` would take.

    Args:
        root: A Megatron-LM checkout, a ``site-packages`` or an unpacked wheel (or ``megatron`` or
            ``megatron/core`` inside one of them); ``None``: search ``sys.path`` as an import would.

    Raises:
        MegatronNotFound: Nothing there.
    """
    return _describe(_root_of(root) if root is not None else _root_on_path())


def _root_of(path: Path) -> Path:
    given = path.expanduser().absolute()
    for candidate in (given, given.parent, given.parent.parent):
        package = candidate / "megatron" / "core"
        if (package / "__init__.py").is_file() and given in (candidate, package.parent, package):
            return candidate
    raise MegatronNotFound(
        f"found no megatron/core under {given}",
        hint="give the directory that holds megatron/: a Megatron-LM checkout or a site-packages",
    )


def _root_on_path() -> Path:
    imported = sys.modules.get("megatron.core")
    if imported is not None and imported.__file__:
        return Path(imported.__file__).absolute().parents[2]
    parent = PathFinder.find_spec("megatron")
    if parent is None or parent.submodule_search_locations is None:
        raise MegatronNotFound("found no megatron package on sys.path", hint=INSTALL_HINT)
    portions = list(parent.submodule_search_locations)
    core = PathFinder.find_spec("megatron.core", portions)
    if core is None or core.origin is None:
        raise MegatronNotFound(
            f"found megatron in {', '.join(portions)}, which has no megatron.core",
            hint="take that directory off sys.path, or put a Megatron before it",
        )
    return Path(core.origin).absolute().parents[2]


def _describe(root: Path) -> Megatron:
    info = _package_info(root / "megatron" / "core" / "package_info.py")
    distribution = _distribution(root)
    version = _claimed(info) or distribution
    return Megatron(root, _kind(root, info, distribution), version, head_commit(root), distribution)


def _kind(root: Path, info: dict[str, object], distribution: str | None) -> Kind:
    if info.get("__package_name__", "megatron_core") not in PACKAGE_NAMES:
        return "fork"
    if distribution is None:
        return "checkout"
    installed = root.name in ("site-packages", "dist-packages") or str(root) in site.getsitepackages()
    return "wheel" if installed else "unpacked"


def _package_info(path: Path) -> dict[str, object]:
    if not path.is_file():
        return {}
    found: dict[str, object] = {}
    for node in ast.parse(path.read_bytes()).body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            found.update({target.id: node.value.value for target in node.targets if isinstance(target, ast.Name)})
    return found


def _claimed(info: dict[str, object]) -> str | None:
    parts = [info.get(name) for name in ("MAJOR", "MINOR", "PATCH")]
    if None in parts:
        return None
    return ".".join(map(str, parts)) + str(info.get("PRE_RELEASE") or "")


def _distribution(root: Path) -> str | None:
    names = sorted(folder.name for folder in root.glob("megatron_core-*.dist-info"))
    return names[-1].removesuffix(".dist-info").partition("-")[2] if names else None
