"""Rewrites files: what breaks on the targets and has an exact stable counterpart."""

from __future__ import annotations

import ast
import difflib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from io import BytesIO
from pathlib import Path
from tokenize import detect_encoding

from mcore_compat.audit.reader import is_megatron, parsed
from mcore_compat.audit.rewrite import fixed
from mcore_compat.audit.search import asked_about, python_files


def fix_files(path: Path, targets: Sequence[str] = ()) -> str:
    """Rewrite every file under ``path`` in place; nothing is written before all is rewritten.

    Args:
        path: A file or a folder.
        targets: What works on all of these releases stays; none: the newest one.

    Returns:
        A unified diff of all changes.

    Raises:
        ConfigError: There is no such path or no Python file, or the table has no such release.
    """
    asked = asked_about(targets)
    texts = {file: _text_of(file) for file in python_files(path)}
    imported: defaultdict[str, set[str]] = defaultdict(set)
    for module, name in (found for file, (text, _) in texts.items() for found in _imported(file, text)):
        imported[module].add(name)
    after = {
        file: fixed(text, asked, imported[_module(file)]) for file, (text, _) in texts.items() if "megatron" in text
    }
    diffs: list[str] = []
    for file in (file for file in after if after[file] != texts[file][0]):
        before, encoding = texts[file]
        file.write_bytes(after[file].encode(encoding))
        lines = (before.splitlines(keepends=True), after[file].splitlines(keepends=True))
        diffs += difflib.unified_diff(*lines, str(file), str(file))
    return "".join(diffs)


def _module(file: Path) -> str:
    """The last part of its name as others import it."""
    return file.parent.resolve().name if file.stem == "__init__" else file.stem


def _imported(file: Path, text: str) -> Iterator[tuple[str, str]]:
    """Last part of a module's name, and the name that this file takes from it; Megatron's own left out."""
    try:
        tree = parsed(text)
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.level or not is_megatron(node.module)):
            module = node.module or file.resolve().parents[node.level - 1].name
            yield from ((module.rpartition(".")[2], alias.name) for alias in node.names)


def _text_of(file: Path) -> tuple[str, str]:
    """The text, line ends as they are, and its encoding; no text where that cannot be told, as the audit says."""
    try:
        source = file.read_bytes()
        encoding, _ = detect_encoding(BytesIO(source).readline)
        return source.decode(encoding), encoding
    except (SyntaxError, UnicodeDecodeError, OSError):
        return "", ""
