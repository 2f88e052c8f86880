"""One session per suite, in the environment that runs nox: releases are overlays, not environments.

nox -f matrix/noxfile.py -s contract -- --only '>=0.15' --jobs 2
"""

from __future__ import annotations

import sys

import nox

from mcore_compat.matrix.suites import SUITES, Suite


def _session_of(suite: Suite) -> None:
    def run(session: nox.Session) -> None:
        session.run(sys.executable, "-m", "mcore_compat", "matrix", "run", "--suite", suite.name, *session.posargs)

    run.__doc__ = suite.doc
    nox.session(run, name=suite.name, venv_backend="none")


for each in SUITES.values():
    _session_of(each)


@nox.session(venv_backend="none")
def report(session: nox.Session) -> None:
    """One page of all results."""
    session.run(sys.executable, "-m", "mcore_compat", "matrix", "report", *session.posargs)
