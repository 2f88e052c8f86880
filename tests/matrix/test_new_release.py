"""What a new release of Megatron-Core takes: one row; with a changed call one row and one file."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.launch import ROOT
from tests.matrix.checkout import Checkout

ROW = '\n[[release]]\nversion = "0.20.0"\nsha256 = "' + "0" * 64 + '"\n'
# Of one length: the wheel's RECORD holds sizes.
OLD, NEW = "config_overrides", "config_selection"


@pytest.fixture
def copy(tmp_path: Path) -> Checkout:
    copy = Checkout(tmp_path)
    copy.change_table("", ROW)
    return copy


def probe(copy: Checkout) -> dict[str, object]:
    done = copy.run("matrix", "run", "--suite", "probe", "--only", "0.20.0", "--json")
    return dict(json.loads(done.stdout)["releases"]["0.20.0"])


def test_nothing_changed_one_row(copy: Checkout) -> None:
    copy.has("0.19.2", called="0.20.0")
    assert probe(copy)["status"] == "passed"


def test_another_optimizer_signature_one_row_and_one_file(copy: Checkout) -> None:
    change_signature(copy.has("0.19.2", called="0.20.0"))
    refused = probe(copy)
    assert refused["status"] == "failed"
    assert "no known call shape of optimizer fits" in str(refused["reason"])
    add_variant(copy)
    copy.change_table("", 'expect.optimizer = "selection"\n')
    assert probe(copy)["status"] == "passed"
    assert trains(copy)


def change_signature(overlay: Path) -> None:
    path = overlay / "megatron" / "core" / "optimizer" / "__init__.py"
    text = path.read_text(encoding="utf-8")
    assert OLD in text
    path.write_text(text.replace(OLD, NEW), encoding="utf-8")


def add_variant(copy: Checkout) -> None:
    folder = copy.root / "mcore_compat" / "seams" / "optimizer"
    text = (folder / "overrides.py").read_text(encoding="utf-8")
    text = text.replace('"overrides", since="0.16.0"', '"selection", since="0.20.0"').replace(OLD, NEW)
    (folder / "selection.py").write_text(text, encoding="utf-8")


def trains(copy: Checkout) -> bool:
    """One step of the README's example, cut to its first."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    example = readme.split("<!-- example -->\n```python\n")[1].split("```")[0].replace("range(5)", "range(1)")
    path = f"{copy.cache / 'overlays' / '0.20.0'}:{copy.root}"
    done = subprocess.run(
        [sys.executable, "-c", example],
        cwd=copy.root,
        env={"PYTHONPATH": path, "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return "gradient norm" in done.stdout
