"""Whether a release has a name, from its source."""

from __future__ import annotations

from functools import lru_cache

from mcore_compat.detect import Facts
from mcore_compat.matrix.overlay import overlay

_ROOT = "megatron.core"


def lookup(dotted: str, version: str) -> bool | None:
    """Whether ``megatron.core`` of that release has the name; ``None`` for names outside of it.

    The release's wheel is fetched once (see :func:`mcore_compat.matrix.overlay.overlay`).

    Raises:
        EnvironmentMismatch: The wheel cannot be fetched.
    """
    if not dotted.startswith(f"{_ROOT}."):
        return None
    facts = _facts(version)
    module, rest = _split(facts, dotted)
    # Below a class everything is left alone: members may be inherited, or set at run time.
    return not rest or facts.defines(f"{module}:{rest[0]}") or _is_special(rest[0])


def _split(facts: Facts, dotted: str) -> tuple[str, list[str]]:
    """The longest part that is a module, and what follows."""
    parts = dotted.split(".")
    end = len(parts)
    while end > 2 and not facts.has_module(".".join(parts[:end])):
        end -= 1
    return ".".join(parts[:end]), parts[end:]


def _is_special(name: str) -> bool:
    return name.startswith("__")


@lru_cache(maxsize=32)
def _facts(version: str) -> Facts:
    return Facts(overlay(version))
