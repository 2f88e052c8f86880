"""Which imports certainly run, read from text."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcore_compat.runtime.source import Source

SPECS = "megatron/core/models/gpt/gpt_layer_specs.py"


def importers(root: Path, files: dict[str, str]) -> dict[str, set[str]]:
    for name, text in {"megatron/core/__init__.py": "", **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return {package: set(modules) for package, modules in Source(root).importers.items()}


@pytest.mark.parametrize(
    "text",
    [
        "import apex",
        "import os, apex.optimizers as fused",
        "from apex import (  # everything (all of it)\n    optimizers,\n)",
        "from apex.optimizers import FusedAdam, \\\n    FusedSGD",
    ],
)
def test_an_import_in_column_zero_counts(tmp_path: Path, text: str) -> None:
    assert importers(tmp_path, {SPECS: text}) == {"apex": {"megatron.core.models.gpt.gpt_layer_specs"}}


@pytest.mark.parametrize(
    "text",
    [
        "try:\n    import apex\nexcept ImportError:\n    pass",
        "if TYPE_CHECKING:\n    import apex",
        "def late():\n    from apex import optimizers",
        "# import apex",
        "import os, sys",
    ],
)
def test_an_import_that_may_not_run_does_not(tmp_path: Path, text: str) -> None:
    assert importers(tmp_path, {SPECS: text}) == {}


@pytest.mark.parametrize(
    "text",
    [
        "from megatron.core.extensions import te",
        "from ...extensions.te import Layer",
        "import megatron.core.extensions.te",
    ],
)
def test_modules_are_followed_with_their_packages(tmp_path: Path, text: str) -> None:
    files = {
        SPECS: text,
        "megatron/core/extensions/__init__.py": "import six",
        "megatron/core/extensions/te.py": "import te",
    }
    found = importers(tmp_path, files)
    assert found == {"six": {"megatron.core.extensions"}, "te": {"megatron.core.extensions.te"}}


def test_a_guarded_module_is_not_followed(tmp_path: Path) -> None:
    files = {SPECS: "try:\n    from ...te import Layer\nexcept ImportError: ...", "megatron/core/te.py": "import te"}
    assert importers(tmp_path, files) == {}
