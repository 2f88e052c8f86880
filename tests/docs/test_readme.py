"""What the README says is what the code does."""

from __future__ import annotations

import re
import tempfile
from functools import lru_cache
from pathlib import Path

import pytest

from mcore_compat.audit.upgrade import upgrading
from mcore_compat.rl.config_load import load_config
from mcore_compat.rl.metrics import as_markdown
from tests.docs.api import PAGE, page
from tests.launch import launch
from tests.releases import DEFAULT_RELEASES

README = Path(__file__).resolve().parents[2] / "README.md"


def _between(marker: str) -> str:
    text = README.read_text(encoding="utf-8")
    start, end = f"<!-- {marker} -->\n", f"<!-- /{marker} -->"
    return text[text.index(start) + len(start) : text.index(end)]


def _block(marker: str) -> str:
    found = re.search(rf"<!-- {marker} -->\n```\w+\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert found
    return found[1]


def test_metrics_table_is_the_one_of_the_code() -> None:
    assert _between("metrics").strip() == as_markdown().strip()


def test_releases_that_make_test_runs_on_are_named() -> None:
    named = f"{', '.join(DEFAULT_RELEASES[:-1])} and {DEFAULT_RELEASES[-1]}"
    assert named in " ".join(README.read_text(encoding="utf-8").split())


@pytest.mark.parametrize(("start", "end"), re.findall(r"<!-- upgrade (\S+) (\S+) -->", README.read_text("utf-8")))
def test_upgrade_tables_are_those_of_the_code(start: str, end: str) -> None:
    assert _between(f"upgrade {start} {end}").strip() == upgrading(start, end)


def test_page_of_public_names_is_the_code() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "write it anew: python -m tests.docs.api"


def test_settings_and_overrides_are_known(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(_block("settings"), encoding="utf-8")
    overrides = re.findall(r"^ +(actor_rollout_ref\S+=\d+)", README.read_text(encoding="utf-8"), re.MULTILINE)
    config = load_config(file, overrides, world_size=4)
    megatron = config.actor_rollout_ref.actor.megatron
    assert (megatron.tensor_model_parallel_size, megatron.pipeline_model_parallel_size) == (2, 2)


@lru_cache
def _printed(release: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "example.py")
        program.write_text(_block("example"), encoding="utf-8")
        [outcome] = launch(program, release=release)
    assert outcome.returncode == 0, str(outcome)
    return outcome.stdout


def test_example_trains_alike(release: str) -> None:
    losses = [float(value) for value in re.findall(r"loss (\S+)", _printed(release))]
    assert len(losses) == 5
    assert losses[-1] < 0.7 * losses[0]
    assert _printed(release) == _printed(DEFAULT_RELEASES[-1])
