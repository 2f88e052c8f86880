"""``pkg_resources``: gone from current setuptools; Megatron used it only to reach ``packaging``."""

from __future__ import annotations

from types import ModuleType

from .build import tree


def build() -> dict[str, ModuleType]:
    """Make ``pkg_resources`` with ``packaging`` in it."""
    import packaging
    import packaging.version

    return tree({"pkg_resources": {"packaging": packaging}})
