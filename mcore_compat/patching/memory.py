"""Applies semantic patches while Megatron is imported; its files stay as they are.

What Python runs is the patched text; every line of it keeps the number that it, or the line it replaces, has in the
file, so that tracebacks and debuggers show the real place. Functions whose source is read at run time
(``torch.jit.script``) are compiled from the file, unpatched.
"""

from __future__ import annotations

import ast
import sys
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import cast

from mcore_compat.detect import find
from mcore_compat.errors import EnvironmentMismatch, PatchError
from mcore_compat.patching.hunks import Hunk, hunks_of, parse, unified
from mcore_compat.patching.operations import extend, require_fine
from mcore_compat.patching.outcome import Result
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
    assert change.before is not None
    assert change.after is not None
    with warnings.catch_warnings():
        # Upstream's own escapes; an import that uses the byte code cache is silent about them, too.
        warnings.simplefilter("ignore", SyntaxWarning)
        warnings.simplefilter("ignore", DeprecationWarning)
        tree = ast.parse(change.after, file)
        _renumber(tree, line_map(change.before, change.after))
        return compile(tree, file, "exec", dont_inherit=True)


def line_map(before: bytes, after: bytes) -> list[int]:
    """For each line of ``after``, from 1, its line in ``before``; an added line has that of its neighbour above.

    Index 0 stands for no line.
    """
    sizes = before.count(b"\n") + 1, after.count(b"\n") + 1
    numbers = list(range(sizes[1] + 1))
    moved, done = 0, 1
    for hunk in hunks_of(parse(unified(before, after, "file"), "a diff of our own")[0]) if before != after else ():
        first = hunk.start_new + 1
        numbers[done:first] = [number - moved for number in range(done, first)]
        numbers[first : first + len(hunk.new)] = _lines_within(hunk)
        done = first + len(hunk.new)
        moved = hunk.start_new + len(hunk.new) - hunk.start - len(hunk.old)
    numbers[done:] = [number - moved for number in range(done, sizes[1] + 1)]
    return [min(number, sizes[0]) for number in numbers]


def _lines_within(hunk: Hunk) -> list[int]:
    exact = {new: old for old, new in hunk.context}
    found: list[int] = []
    number = hunk.start
    for index in range(len(hunk.new)):
        following = next((old for new, old in exact.items() if new >= index), len(hunk.old))
        number = hunk.start + exact[index] + 1 if index in exact else min(number + 1, hunk.start + following)
        found.append(max(number, 1))
    return found


def _renumber(tree: ast.Module, numbers: list[int]) -> None:
    if numbers == list(range(len(numbers))):
        return
    for node in ast.walk(tree):
        if "lineno" in node._attributes:
            _place(cast("ast.expr", node), numbers)


def _place(node: ast.expr, numbers: list[int]) -> None:
    node.lineno, node.end_lineno = numbers[node.lineno], numbers[node.end_lineno or node.lineno]
    if node.end_lineno == node.lineno and (node.end_col_offset or 0) < node.col_offset:
        # Lines that share a number now: columns no longer say which comes first.
        node.end_col_offset = node.col_offset


def _planned(tree: Tree, patches: Iterable[str | Path]) -> tuple[Result, ...]:
    """Plan ids and files on the tree."""
    wanted = [str(patch) for patch in patches]
    files = [Path(name) for name in wanted if name.endswith((".yaml", ".yml"))]
    results = extend(tree, [name for name in wanted if Path(name) not in files], files)
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
