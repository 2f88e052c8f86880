"""Patches for Megatron trees: semantic rules and unified diffs, checked before, reversible after.

Imports neither torch nor Megatron. ``patches/README.md`` describes the format of a semantic patch.
"""

from importlib.util import find_spec

from mcore_compat.errors import EnvironmentMismatch

_missing = [name for name in ("ast_grep_py", "jsonschema", "unidiff", "yaml") if find_spec(name) is None]
if _missing:
    raise EnvironmentMismatch(
        f"patching needs packages that are not installed: {', '.join(_missing)}",
        hint="pip install 'mcore-compat[patch]'",
    )

from mcore_compat.patching.memory import load, require_fit, unload  # noqa: E402  # after what they need is known to be there
from mcore_compat.patching.operations import Plan, Report, apply, check, diff, plan, revert, status  # noqa: E402
from mcore_compat.patching.outcome import Result, State  # noqa: E402

__all__ = [
    "Plan",
    "Report",
    "Result",
    "State",
    "apply",
    "check",
    "diff",
    "load",
    "plan",
    "require_fit",
    "revert",
    "status",
    "unload",
]
