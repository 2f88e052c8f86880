"""Counts happy words, as a reward function in verl's signature."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

HAPPY = re.compile(r"\b(happy|happily|smil\w*|laugh\w*|lov\w*|fun|play\w*|joy\w*|glad|nice|hug\w*)\b", re.IGNORECASE)


def compute_score(
    data_source: str, solution_str: str, ground_truth: Any, extra_info: Mapping[str, Any] | None = None
) -> float:
    return float(len(HAPPY.findall(solution_str)))
