"""Outcomes of ``run.sh`` as rows of Markdown, and on standard error what no reason explains: ``table.py FOLDER...``."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from pathlib import Path

# First match wins.
REASONS = {
    "peer": r"Connection closed by peer|Connection reset by peer|Timed out waiting|Broken pipe|connectFullMesh",
    # Without it, its classes are mocks, which give nothing back, or None.
    "Transformer Engine": r"transformer_engine|Transformer Engine|TE >= |'TE\w+' is not|FP8GlobalState|Mock object"
    r"|unpack \(expected 2, got 0\)|unittest/mock\.py|typed_torch\.py",
    "more ranks": r"not divisible by|over ?sized|\d+ GPUs|should be divisible by partial|world size",
    # Without triton, Megatron's kernels are context managers; without apex, its norm is torch's.
    "other package": r"No module named|Grouped GEMM is not available|not installed|_GeneratorContextManager"
    r"|supported by torch LayerNorm",
    "CUDA itself": r"cudagraph|CUDA ?graph|nvrtc|load_inline|CUDA_HOME",
    "device name": r"'cpu' == 'cuda'",
}
ORDER = ("passed", "skipped", "hung", "failed")
Row = tuple[str, str]
SHOWN = [reason for reason in REASONS if reason != "peer"]


def rows(folder: Path) -> dict[str, Row]:
    """Test to its worst outcome over the ranks, and the best reason for it."""
    found: dict[str, Row] = {}
    for path in sorted(folder.glob("rank*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            new = (row["outcome"], row["why"])
            found[row["test"]] = max(found.get(row["test"], new), new, key=_weight)
    return found


def _weight(row: Row) -> tuple[int, bool]:
    return ORDER.index(row[0]), reason(row[1]) in SHOWN


def reason(why: str) -> str:
    """The first reason whose pattern occurs."""
    return next((name for name, pattern in REASONS.items() if re.search(pattern, why)), "unexplained")


def main(folders: list[str]) -> None:
    """Print one row per folder, named VERSION-RANKS."""
    print("| " + " | ".join(["tag", "ranks", "passed", "skipped", *SHOWN, "hung", "other"]) + " |")
    print("|---" * (len(SHOWN) + 6) + "|")
    for folder in map(Path, folders):
        found = rows(folder)
        outcomes = Counter(outcome for outcome, _ in found.values())
        why = Counter(reason(text) for outcome, text in found.values() if outcome == "failed")
        tag, _, ranks = folder.name.rpartition("-")
        explained = [why[name] for name in SHOWN]
        other = outcomes["failed"] - sum(explained)
        cells = [f"core_v{tag}", ranks, outcomes["passed"], outcomes["skipped"], *explained, outcomes["hung"], other]
        print("| " + " | ".join(map(str, cells)) + " |")
        _print_others(folder.name, found)


def _print_others(name: str, found: dict[str, Row]) -> None:
    others = Counter(
        (outcome, test.partition("[")[0], why)
        for test, (outcome, why) in found.items()
        if outcome == "hung" or (outcome == "failed" and reason(why) not in SHOWN)
    )
    for (outcome, test, why), count in others.items():
        print(name, outcome, f"{count} x {test}: {why}", file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1:])
