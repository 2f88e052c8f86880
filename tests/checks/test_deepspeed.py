"""The failure with DeepSpeed ZeRO-2 in bf16: KL against the reference that is not 0 at step 0.

DeepSpeed is no dependency and compiles an extension the first time, so this runs where it is installed:
``pip install deepspeed`` and a C++ compiler.
"""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from tests.launch import run_ranks


@pytest.mark.skipif(find_spec("deepspeed") is None, reason="deepspeed is not installed")
@pytest.mark.timeout(900)
def test_zero_2_in_bf16() -> None:
    [found] = run_ranks("tests.checks.zero2:step_zero", release=None, timeout=880)
    assert (found["stage"], found["optimizer"]) == (2, "DeepSpeedZeroOptimizer")
    unequal, alike = found["fp32 reference"], found["reference prepared alike"]
    print(unequal)
    assert not unequal["passed"]
    assert unequal["mean_difference"] != 0.0
    assert unequal["cause"] == "parameter precision"
    assert "dtype" in unequal["detail"]
    assert "torch.bfloat16" in unequal["detail"]
    assert (alike["passed"], alike["mean_difference"], alike["largest_difference"]) == (True, 0.0, 0.0)
