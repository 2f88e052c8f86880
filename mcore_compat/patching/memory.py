"""Applies semantic patches while Megatron is imported; its files stay as they are.

What Python runs is the patched text; every line of it keeps the number that it, or the line it replaces, has in the
file, so that tracebacks and debuggers show the real place. Functions whose source is read at run time
(``torch.jit.script``) are compiled from the file, unpatched. Plans and code are kept in the cache folder.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, cast

from mcore_compat.detect import find
from mcore_compat.errors import ConfigError, EnvironmentMismatch, PatchError
from mcore_compat.patching.catalogue import select
from mcore_compat.patching.compiling import compiled
from mcore_compat.patching.kept import kept
from mcore_compat.patching.ledger import digest
from mcore_compat.patching.operations import extend, require_fine
from mcore_compat.patching.outcome import Result, Step
from mcore_compat.patching.rules import RulePatch
from mcore_compat.patching.tree import Change, Tree, open_tree, read_file
from mcore_compat.runtime.actions import IN_MEMORY, Action
from mcore_compat.runtime.hooks import find_after


@dataclass
class _Session:
    tree: Tree
    finder: _Finder


_session: _Session | None = None


def load(patches: Iterable[str | Path]) -> tuple[Result, ...]:
    """Apply patches in memory to the Megatron that an import would take. Must come before those modules are imported.

    Args:
        patches: Ids of the package's patches, and paths of ``.yaml`` files; a second call adds to the first.

    Returns:
        One result per patch; "not needed" and "already applied" are fine.

    Raises:
        ConfigError: No such patch.
        EnvironmentMismatch: A module that a patch changes is imported already.
        MegatronNotFound: There is none.
        PatchError: A patch does not fit; nothing is patched then.
    """
    global _session
    session = _session or _Session(open_tree(find().root), _Finder())
    tree = session.tree.copy()
    results = _planned(tree, patches)
    changed = {path: each for path, each in tree.changes.items() if each != session.tree.changes.get(path)}
    _require_fresh(changed)
    session.tree = tree
    session.finder.changes |= {_module_of(path): change for path, change in changed.items()}
    if _session is None:
        sys.meta_path.insert(0, session.finder)
        _session = session
    IN_MEMORY.extend(_action(result) for result in results if result.state == "applied")
    return results


def require_fit(root: Path, patches: Iterable[str | Path]) -> None:
    """Raise what :func:`load` would raise with the Megatron in ``root``."""
    _planned(open_tree(root), patches)


def unload() -> None:
    """Stop patching imports. Modules that are imported by now stay patched."""
    global _session
    if _session is not None:
        sys.meta_path.remove(_session.finder)
        IN_MEMORY.clear()
        _session = None


class _Finder(MetaPathFinder):
    """Gives the loaders of patched modules the patched code."""

    def __init__(self) -> None:
        self.changes: dict[str, Change] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec that others find, its loader compiling the patched text."""
        if fullname not in self.changes:
            return None
        spec = find_after(self, fullname, path, target)
        if spec and isinstance(spec.loader, SourceFileLoader):
            _give(spec.loader, self.changes[fullname])
        return spec


def _give(loader: SourceFileLoader, change: Change) -> None:
    def get_code(fullname: str) -> CodeType:
        return patched_code(change, loader.path)

    loader.get_code = get_code  # type: ignore[method-assign]  # inspect and importlib ask for the loader's type


def patched_code(change: Change, file: str) -> CodeType:
    """The code of a patched module, with the line numbers of its file.

    Raises:
        PatchError: The file is no longer what the patch was planned on.
    """
    if read_file(Path(file)) != change.before:
        raise PatchError(f"{file} changed since its patches were loaded", hint="start the process again")
    before, after = change.before or b"", change.after or b""
    return cast("CodeType", kept(lambda: compiled(before, after, file), "code", file, digest(before), digest(after)))


class Remembered(RulePatch):
    """A semantic patch whose plan is read back where it was made on the same files before."""

    def plan(self, tree: Tree) -> Step:
        """Say what it would do to ``tree``; changes nothing. Errors as of the patch itself."""
        paths = [tree.locate(path) for target in self.rules.files for path in target.path]
        read = [each for path in paths for each in (path, digest(tree.read(path)))]
        result, changed = kept(lambda: self._planned(tree), "plan", self.digest, *read)
        changes = {path: Change(tree.read(path), after) for path, after in changed.items()}
        return Step(Result(**result), self.digest, changes)

    def _planned(self, tree: Tree) -> tuple[dict[str, Any], dict[str, bytes | None]]:
        step = super().plan(tree)
        return asdict(step.result), {path: change.after for path, change in step.changes.items()}


def _planned(tree: Tree, patches: Iterable[str | Path]) -> tuple[Result, ...]:
    """Plan ids and files on the tree."""
    wanted = [str(patch) for patch in patches]
    if diffs := [name for name in wanted if name.endswith((".patch", ".diff"))]:
        raise ConfigError(
            f"{diffs[0]} is a unified diff, which fits files and not what is imported",
            hint=f"mcore-compat patch apply {diffs[0]} --root TREE, or write it as a rule (patch new)",
        )
    files = [Path(name) for name in wanted if name.endswith((".yaml", ".yml"))]
    chosen = [*select(name for name in wanted if Path(name) not in files), *(select(None, files) if files else ())]
    results = extend(tree, [Remembered(patch.rules) if isinstance(patch, RulePatch) else patch for patch in chosen])
    require_fine(results)
    return results


def _module_of(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _action(result: Result) -> Action:
    return Action("patch", result.id, f"in memory, at {', '.join(result.where)}")


def _require_fresh(changed: Iterable[str]) -> None:
    early = sorted(name for name in map(_module_of, changed) if name in sys.modules)
    if early:
        raise EnvironmentMismatch(
            f"{early[0]} was imported before its patches were loaded",
            hint="call mcore_compat.patching.load() before the first import of megatron",
        )
