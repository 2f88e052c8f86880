"""The command line: ``mcore-compat`` and ``python -m mcore_compat``."""

from __future__ import annotations

import sys
from importlib.util import find_spec


def main() -> None:
    """Run the command line of this process and exit with its status."""
    missing = [name for name in ("click", "rich") if find_spec(name) is None]
    if missing:
        print(f"the command line needs {' and '.join(missing)}", file=sys.stderr)
        print("  next: pip install 'mcore-compat[cli]'", file=sys.stderr)
        sys.exit(4)
    from mcore_compat.cli._app import app

    app(prog_name="mcore-compat")
