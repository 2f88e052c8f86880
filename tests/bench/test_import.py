"""What ``import mcore_compat`` costs a program that does not use it yet."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

ROUNDS = 9
LIMIT_SECONDS = 0.050


def _seconds(statement: str) -> float:
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", statement], check=True, stdin=subprocess.DEVNULL)
    return time.perf_counter() - started


def test_import_adds_at_most_50_ms() -> None:
    _seconds("import mcore_compat")  # writes the byte code
    # Alternating, so that whatever else the machine does at the moment slows both alike.
    pairs = [(_seconds("pass"), _seconds("import mcore_compat")) for _ in range(ROUNDS)]
    bare, ours = (statistics.median(column) for column in zip(*pairs, strict=True))
    print(f"bare interpreter {bare * 1e3:.1f} ms, with import mcore_compat {ours * 1e3:.1f} ms")
    assert ours - bare <= LIMIT_SECONDS


def test_import_loads_no_torch() -> None:
    program = "import mcore_compat, sys; print(sorted({'torch', 'megatron', 'numpy'} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"
