"""``python -m mcore_compat``: the command line, as ``mcore-compat``."""

from mcore_compat.cli import main

if __name__ == "__main__":
    main()
