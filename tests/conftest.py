"""Options and parametrisation shared by all tests.

A test that takes the argument ``release`` runs once per Megatron-Core release: by default on those the README
promises, with ``--all-releases`` on all of the release table, with ``--megatron VERSION`` on that one only.
``@pytest.mark.releases("0.6.0", ...)`` narrows a test to the releases it is about.
"""

from __future__ import annotations

import os

import pytest

from tests.releases import DEFAULT_RELEASES

# Before anything imports torch: tests run side by side, and sums must not depend on the number of threads.
os.environ["OMP_NUM_THREADS"] = "1"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("mcore_compat")
    group.addoption("--all-releases", action="store_true", help="run on every release of the table")
    group.addoption("--megatron", metavar="VERSION", help="run only on this release")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "releases(*versions): the only releases that this test is about")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "release" in metafunc.fixturenames:
        metafunc.parametrize("release", _wanted(metafunc))


def _wanted(metafunc: pytest.Metafunc) -> list[str]:
    only = metafunc.config.getoption("--megatron")
    mark = metafunc.definition.get_closest_marker("releases")
    if mark:
        return [version for version in mark.args if only in (None, version)]
    if only:
        return [only]
    return _table() if metafunc.config.getoption("--all-releases") else list(DEFAULT_RELEASES)


def _table() -> list[str]:
    from mcore_compat.matrix.table import releases

    return [row.version for row in releases()]
