"""Rules of the code base that a reader relies on."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mcore_compat.detect import Facts
from mcore_compat.matrix.overlay import overlay
from mcore_compat.matrix.table import releases
from mcore_compat.seams._registry import seams

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "mcore_compat").rglob("*.py"))
SEAM_FILES = sorted((ROOT / "mcore_compat" / "seams").rglob("*.py"))
MOST_LINES_OF_A_FUNCTION = 50
MOST_LINES_OF_A_FILE = 400


def named(paths: list[Path]) -> list[str]:
    return [str(path.relative_to(ROOT)) for path in paths]


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


def test_layers() -> None:
    run = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"
    done = subprocess.run([sys.executable, "-c", run], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", FILES, ids=named(FILES))
def test_sizes(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= MOST_LINES_OF_A_FILE
    long = {
        node.name: size
        for node in functions(path)
        if (size := (node.end_lineno or 0) - node.lineno + 1) > MOST_LINES_OF_A_FUNCTION
    }
    assert not long


@pytest.mark.parametrize("path", SEAM_FILES, ids=named(SEAM_FILES))
def test_no_seam_reads_a_version(path: Path) -> None:
    assert not {name.partition(".")[0] for name in imports(path)} & {"packaging", "pkg_resources"}
    assert "importlib.metadata" not in set(imports(path))


def test_exactly_one_variant_of_every_seam(release: str) -> None:
    facts = Facts(overlay(release))
    chosen = {seam.name: seam.select(facts).variant for seam in seams()}
    assert chosen


def test_every_variant_is_taken_by_some_release(pytestconfig: pytest.Config) -> None:
    if not pytestconfig.getoption("--all-releases"):
        pytest.skip("fetches every release of the table: asks for --all-releases")
    trees = [Facts(overlay(row.version)) for row in releases()]
    taken = {(seam.name, seam.select(facts).variant) for facts in trees for seam in seams()}
    known = {(seam.name, variant.name) for seam in seams() for variant in seam.variants}
    # No wheel holds megatron.optimizer: only a Megatron-LM checkout of 0.4.0 or 0.5.0 does.
    assert known - taken <= {("optimizer", "repository")}
