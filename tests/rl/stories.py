"""Prompts that begin stories, for the example in ``examples/``."""

from __future__ import annotations

import json
from pathlib import Path

EXAMPLES = Path(__file__).parent / "examples"
WHO = (
    "a little girl named Lily",
    "a little boy named Tim",
    "a big dog named Max",
    "a small cat named Kitty",
    "a bird named Bob",
    "a boy named Tom",
    "a girl named Sue",
    "a bear named Ben",
)
WHEN = ("Once upon a time, there was", "One day, there was", "Once there was", "One sunny day, there was")


def write_story_prompts(file: Path) -> Path:
    rows = [{"data_source": "stories", "prompt": f"{when} {who}."} for when in WHEN for who in WHO]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return file
