"""Options and parametrisation shared by all tests.

A test that takes the argument ``release`` runs once per Megatron-Core release: by default on those the README
promises, with ``--all-releases`` on all of the release table, with ``--megatron VERSION`` on that one only.
``@pytest.mark.releases("0.6.0", ...)`` narrows a test to the releases it is about;
``@pytest.mark.sampled("0.4.0", ...)`` narrows it where neither option is given.
"""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from mcore_compat.matrix.table import releases
from tests.releases import DEFAULT_RELEASES

# Before anything imports torch: tests run side by side, and sums must not depend on the number of threads.
os.environ["OMP_NUM_THREADS"] = "1"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("mcore_compat")
    group.addoption("--all-releases", action="store_true", help="run on every release of the table")
    group.addoption("--megatron", metavar="VERSION", help="run only on this release")


def pytest_configure(config: pytest.Config) -> None:
    # A shell makes what runs in its background deaf to it, and tests interrupt programs.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    config.addinivalue_line("markers", "releases(*versions): the only releases that this test is about")
    config.addinivalue_line("markers", "sampled(*versions): enough of them where nobody asks for others")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "release" in metafunc.fixturenames:
        metafunc.parametrize("release", _wanted(metafunc))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Where tests run side by side."""
    from tests.sharing import Sharing

    return Sharing(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests that are about other releases, which pytest would call skipped."""
    about_others = [item for item in items if not isinstance(_parameters(item).get("release", ""), str)]
    config.hook.pytest_deselected(items=about_others)
    items[:] = [item for item in items if item not in about_others]


def _parameters(item: pytest.Item) -> dict[str, object]:
    return item.callspec.params if hasattr(item, "callspec") else {}


def asked_for(config: pytest.Config) -> list[str]:
    """The releases that a test without marks runs on."""
    if config.getoption("--megatron"):
        return [config.getoption("--megatron")]
    if config.getoption("--all-releases"):
        return [row.version for row in releases()]
    return list(DEFAULT_RELEASES)


def _wanted(metafunc: pytest.Metafunc) -> list[str]:
    config, marks = metafunc.config, metafunc.definition
    if about := marks.get_closest_marker("releases"):
        return [version for version in about.args if config.getoption("--megatron") in (None, version)]
    sample = marks.get_closest_marker("sampled")
    chosen = config.getoption("--megatron") or config.getoption("--all-releases")
    return list(sample.args) if sample and not chosen else asked_for(config)
