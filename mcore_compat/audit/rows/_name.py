"""How the rows of names are written."""

from __future__ import annotations

from mcore_compat.audit.table import Row
from mcore_compat.audit.uses import Name

OPTIMIZER = "mcore_compat.build_optimizer(OptimizerSettings(...), chunks, data_parallel)"
MICROBATCHES = "pass the microbatches themselves to mcore_compat.forward_backward"
EVER_SINCE = ""


def row(module: str, names: str, works: tuple[str, str], change: str, instead: str, served: str = "") -> Row:
    """Names, separated by spaces; none: the module and all that is in it."""
    return Row(Name(module, frozenset(names.split())), *works, change, instead, served)
