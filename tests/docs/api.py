"""The page of all public names; ``python -m tests.docs.api`` writes it anew."""

from __future__ import annotations

import ast
import inspect
import textwrap
from pathlib import Path

import mcore_compat

PAGE = Path(mcore_compat.__file__).with_name("API.md")
HEAD = """# Public names of mcore_compat

Everything in `mcore_compat.__all__`, with signatures; `help(mcore_compat.NAME)` has shapes, units, errors and sources.
"""
KINDS = ("Functions", "Types", "Errors")


def page() -> str:
    """The page as it must be."""
    parts: dict[str, list[str]] = {kind: [] for kind in KINDS}
    for name in mcore_compat.__all__:  # type: ignore[attr-defined]
        found = getattr(mcore_compat, name)
        parts[_kind(found)].append(f"| `{_signature(name, found)}` | {_first_line(found)} |")
    tables = [f"\n## {kind}\n\n| | |\n|---|---|\n" + "\n".join(lines) + "\n" for kind, lines in parts.items()]
    return HEAD + "".join(tables)


def _kind(found: object) -> str:
    if not inspect.isclass(found):
        return "Functions"
    return "Errors" if issubclass(found, Exception) else "Types"


def _signature(name: str, found: object) -> str:
    """As it is written in the source; a protocol or an error is its name."""
    if _kind(found) == "Errors" or getattr(found, "_is_protocol", False):
        return name
    [node] = ast.parse(textwrap.dedent(inspect.getsource(found))).body  # type: ignore[arg-type]
    if isinstance(node, ast.FunctionDef):
        returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
        return f"{name}({ast.unparse(node.args)}){returns}".replace("|", "\\|")
    assert isinstance(node, ast.ClassDef)
    made = [part for part in node.body if isinstance(part, ast.FunctionDef) and part.name == "__init__"]
    fields = [ast.unparse(part) for part in node.body if isinstance(part, ast.AnnAssign)]
    arguments = ast.unparse(made[0].args).removeprefix("self, ") if made else ", ".join(fields)
    return f"{name}({arguments})".replace("|", "\\|")


def _first_line(found: object) -> str:
    return (inspect.getdoc(found) or "").splitlines()[0].replace("``", "`").replace(":func:", "")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
