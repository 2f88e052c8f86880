"""Run a suite once per release, each in a process of its own, and resume where the last run stopped."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from mcore_compat.errors import ConfigError, McoreCompatError
from mcore_compat.matrix.cells import Cell, Results
from mcore_compat.matrix.curves import agreement
from mcore_compat.matrix.execute import outside_python_range
from mcore_compat.matrix.overlay import overlay
from mcore_compat.matrix.process import Processes
from mcore_compat.matrix.suites import Suite, checkout, fingerprint, obstacle
from mcore_compat.matrix.table import forks, releases, row

# (name of the release, its cell, whether it was there already)
Say = Callable[[str, Cell, bool], None]


def selected(only: Sequence[str], suite: Suite) -> list[str]:
    """Names of releases and forks, in the order of the tables; with curves, the release that all are compared with.

    Args:
        suite: What will run on them.
        only: Entries: a version, the name of a fork, several of these with commas between, or a specifier
            (``>=0.15,<0.17``) of releases. None: every release.

    Raises:
        ConfigError: An entry is none of these.
    """
    known = [entry.version for entry in releases()]
    if not only:
        return known
    wanted = {name for entry in only for name in _matching(entry, known)}
    if suite.draws_curves:
        wanted.add(known[-1])
    return [name for name in [*known, *(fork.name for fork in forks())] if name in wanted]


def run_suite(
    suite: Suite, names: Sequence[str], *, say: Say, jobs: int = 1, fresh: bool = False, results: Results | None = None
) -> Mapping[str, Cell]:
    """Run a suite on these releases; a cell that passed before, and that nothing has changed since, is taken as it is.

    Args:
        suite: From ``SUITES``.
        names: Releases and forks.
        say: Told each cell when it is there.
        jobs: How many releases at a time.
        fresh: Run all of them again.
        results: Where cells are kept.

    Returns:
        Name to cell, in the order of ``names``.

    Raises:
        ConfigError: There is no checkout to take the tests from, or a name is in no table.
        EnvironmentMismatch: pytest is missing.
    """
    root, kept = checkout(), results or Results()
    keys = {name: fingerprint(row(name), suite, root) for name in names}
    found: dict[str, Cell] = {}
    for name in [] if fresh else names:
        if (cell := kept.load(suite.name, name, keys[name])) and cell.status == "passed":
            found[name] = cell
            say(name, cell, True)
    for name, cell in _run_all(suite, [name for name in names if name not in found], root, jobs):
        found[name] = cell
        kept.store(suite.name, name, keys[name], cell)
        say(name, cell, False)
    cells = {name: found[name] for name in names}
    return agreement(cells, releases()[-1].version) if suite.draws_curves else cells


def _matching(entry: str, known: Sequence[str]) -> Iterator[str]:
    if entry[:1] not in "<>=!~":
        for name in entry.split(","):
            row(name)
            yield name
        return
    try:
        yield from SpecifierSet(entry).filter(known)
    except InvalidSpecifier as error:
        raise ConfigError(f"{entry!r} is no version specifier", hint="--only '>=0.15,<0.17'") from error


def _run_all(suite: Suite, names: Sequence[str], root: Path, jobs: int) -> Iterator[tuple[str, Cell]]:
    """Each cell as soon as it is there."""
    processes = Processes()
    # Each thread waits for one process.
    with ThreadPoolExecutor(max_workers=jobs) as pool:
        running = {pool.submit(_run_one, suite, name, root, processes): name for name in names}
        try:
            for done in as_completed(running):
                yield running[done], done.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            processes.stop()
            raise


def _run_one(suite: Suite, name: str, root: Path, processes: Processes) -> Cell:
    try:
        if reason := obstacle(row(name), suite):
            return Cell("skipped", reason=reason)
        note = outside_python_range(overlay(name))
    except McoreCompatError as error:
        return Cell("skipped", reason=str(error))
    return replace(processes.test(suite.tests, name, root=root, limit=suite.limit), note=note)
