"""The first version of a semantic patch."""

from __future__ import annotations

import json
import re
from pathlib import Path

from mcore_compat.errors import ConfigError, PatchError
from mcore_compat.patching.format import parse

_CAPTURE = re.compile(r"\$+([A-Z_][A-Z0-9_]*)")
_TEXT = """\
# patches/README.md describes every key. Try it: mcore-compat patch check {id}.yaml --root TREE
id: {id}
title: What it changes, in one line
why: What goes wrong without it, and for whom.
since: "{since}"
files:
  - path: [{path}]
    edits:
      - rule: {{pattern: {pattern}}}
        fix: {fix}
    ensures:
      - rule: {{pattern: {fix}}}
examples:
  - before: {before}
    after: {after}
"""


def start(patch_id: str, folder: Path, *, since: str, path: str, pattern: str, fix: str) -> Path:
    """Write ``<id>.yaml``, a patch with one edit.

    Args:
        patch_id: Lower-case words joined by hyphens.
        folder: Where to.
        since: First release that needs it.
        path: File that it changes, relative to the tree.
        pattern: ast-grep pattern of what is replaced.
        fix: What it becomes; may use the pattern's captures.

    Raises:
        ConfigError: The file exists, or an argument does not give a valid patch.
    """
    quoted = {name: json.dumps(value) for name, value in {"path": path, "pattern": pattern, "fix": fix}.items()}
    snippets = {"before": json.dumps(_snippet(pattern)), "after": json.dumps(_snippet(fix))}
    text = _TEXT.format(id=patch_id, since=since, **quoted, **snippets)
    file = folder / f"{patch_id}.yaml"
    try:
        parse(text, file.name)
        with file.open("x", encoding="utf-8") as new:
            new.write(text)
    except FileExistsError as error:
        raise ConfigError(f"{file} exists", hint=f"mcore-compat patch check {file} --root TREE") from error
    except OSError as error:
        raise ConfigError(f"cannot write {file}: {error.strerror}", hint="run it in another folder") from error
    except PatchError as error:
        raise ConfigError(str(error.args[0]), hint="mcore-compat patch new --help") from error
    return file


def _snippet(pattern: str) -> str:
    """Code that the pattern matches: a name in place of every capture."""
    return _CAPTURE.sub(lambda found: found[1].lower(), pattern).rstrip("\n") + "\n"
