"""All checks that need one rank, in one process: importing torch and Megatron costs more than all of them."""

from __future__ import annotations

import warnings
from typing import Any

import mcore_compat


def checks() -> dict[str, Any]:
    """Findings by topic."""
    warnings.simplefilter("ignore")
    mcore_compat.prepare("cpu")
    groups = mcore_compat.init_parallel()
    mcore_compat.seed(1)

    from tests.contract.programs.dropout import dropout
    from tests.contract.programs.loading import loading
    from tests.contract.programs.packages import packages
    from tests.contract.programs.parity import parity

    return {"packages": packages(), "parity": parity(), "loading": loading(groups), "dropout": dropout()}
