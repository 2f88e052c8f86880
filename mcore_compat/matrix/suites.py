"""The suites that `matrix run` knows, and whether one of them can run on a release here."""

from __future__ import annotations

import hashlib
import platform
from dataclasses import asdict, dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from packaging.requirements import Requirement

from mcore_compat.errors import ConfigError, EnvironmentMismatch
from mcore_compat.matrix.rows import LEVELS, Fork, Level, Release
from mcore_compat.matrix.table import release


@dataclass(frozen=True)
class Suite:
    """Tests that run once per release.

    Attributes:
        name: What ``--suite`` calls it.
        doc: What it proves.
        level: The level a row must have for it.
        tests: Files or folders of the checkout.
        limit: Seconds until one release's run is stopped.
        draws_curves: Whether its results hold series that must be equal on all releases.
    """

    name: str
    doc: str
    level: Level
    tests: tuple[str, ...]
    limit: float
    draws_curves: bool = False


SUITES = {
    suite.name: suite
    for suite in (
        Suite("probe", "the source has the call shapes of its row", "probe", ("tests/matrix/test_probe.py",), 120),
        Suite("import", "it imports, and the objects have them too", "import", ("tests/matrix/test_import.py",), 300),
        Suite("contract", "every call does what the API promises", "contract", ("tests/contract",), 1200),
        Suite("ppo", "PPO and plain training give one curve", "contract", ("tests/matrix/test_curves.py",), 900, True),
    )
}


def checkout() -> Path:
    """The repository whose tests the suites are.

    Raises:
        ConfigError: This package is installed without one, and none is the current folder.
        EnvironmentMismatch: pytest is missing.
    """
    places = (Path(__file__).parents[2], Path.cwd())
    found = [place for place in places if (place / "tests" / "contract").is_dir() and (place / "mcore_compat").is_dir()]
    if not found:
        raise ConfigError(
            f"the suites are the tests of the repository, which {places[0]} does not hold",
            hint="clone the mcore_compat repository, run make test once, then .venv/bin/mcore-compat matrix run there",
        )
    if find_spec("pytest") is None:
        raise EnvironmentMismatch("the suites need pytest, which is not installed", hint="pip install --group test")
    return found[0]


def obstacle(row: Release | Fork, suite: Suite) -> str:
    """Why this suite cannot run on that release here; nothing where it can."""
    if LEVELS.index(row.level) < LEVELS.index(suite.level):
        return f"verified up to {row.level} only: {row.note or 'a fork has no release that the suite could ask for'}"
    needs = row.needs if isinstance(row, Release) else release(row.base).needs
    missing = [] if suite.level == "probe" else [*filter(None, map(_missing, map(Requirement, needs)))]
    return "; ".join(missing)


def fingerprint(row: Release | Fork, suite: Suite, root: Path) -> str:
    """Hash of all that a result depends on: package, tests, row, torch and Python."""
    described = sorted((key, value) for key, value in asdict(row).items() if key != "note")
    parts = [platform.python_version(), _installed("torch"), repr(described), _sources(root, suite.tests)]
    if isinstance(row, Fork):
        stats = ((str(path), path.stat()) for path in sorted(row.root.glob("megatron/**/*.py")))
        parts.append(repr([(path, stat.st_size, stat.st_mtime_ns) for path, stat in stats]))
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


@cache
def _sources(root: Path, tests: tuple[str, ...]) -> str:
    """Hash of the package and of the tests, read once."""
    folders = {root / (Path(name).parent if name.endswith(".py") else name) for name in tests}
    deep = (path for folder in (root / "mcore_compat", *folders) for path in folder.rglob("*.py"))
    digest = hashlib.sha256()
    for path in sorted([*deep, *(root / "tests").glob("*.py"), root / "pyproject.toml"]):
        digest.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def _missing(need: Requirement) -> str:
    found = _installed(need.name)
    if not found:
        return f"needs {need}, which is not installed"
    return "" if need.specifier.contains(found, prereleases=True) else f"needs {need}, this is {found}"


def _installed(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""
