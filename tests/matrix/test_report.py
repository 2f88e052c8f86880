"""The report: one page that needs no network, and the README's table."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from mcore_compat.errors import ConfigError
from mcore_compat.matrix.cells import Cell, Results, Series
from mcore_compat.matrix.page import page
from mcore_compat.matrix.report import Overview, as_kept, as_markdown, between, gather, read_kept
from mcore_compat.matrix.suites import SUITES, fingerprint
from mcore_compat.matrix.table import release, releases
from tests.launch import ROOT

CURVES: Mapping[str, Series] = {
    "supervised": {"loss": [3.0, 2.0, 1.5]},
    "ppo": {"critic/score/mean": [0.1, 0.4], "critic/lr": [1.0, 1.0]},
}
OTHER: Mapping[str, Series] = {**CURVES, "supervised": {"loss": [3.0, 2.5, 1.4]}}
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def stored(folder: Path, series: Mapping[str, Mapping[str, Series]] | None = None) -> Results:
    """Results of every suite on every release; one release was skipped, one has a test that failed."""
    results = Results(folder)
    for suite in SUITES.values():
        for row in releases():
            curves = (series or {}).get(row.version, CURVES) if suite.draws_curves else {}
            cell = Cell("passed", passed=7, skipped=1, reason="1 × needs a <GPU>", seconds=12.3, series=curves)
            results.store(suite.name, row.version, fingerprint(row, suite, ROOT), cell)
    results.store("contract", "0.6.0", "", Cell("failed", passed=6, failed=1, reason="test_x: wrong"))
    results.store("contract", "0.7.0", "", Cell("skipped", reason="needs torch>=99"))
    return results


@pytest.fixture(scope="module")
def overview(tmp_path_factory: pytest.TempPathFactory) -> Overview:
    return gather(ROOT, stored(tmp_path_factory.mktemp("results"), {"0.8.0": OTHER}))


def test_the_page_holds_every_release_suite_curve_and_reason(overview: Overview) -> None:
    text = page(overview)
    assert all(f"<b>{row.version}</b>" in text for row in releases())
    assert all(heading in text for heading in ("call shapes", "imports", "contract", "same curves"))
    assert "27 releases, 2 different curves" in text
    assert "critic/score/mean" in text
    assert "<b>0.8.0</b> supervised, loss, step 1: 2.5 instead of 2.0" in text
    assert "<b>0.6.0</b> contract: test_x: wrong" in text
    assert "needs a &lt;GPU&gt;" in text
    assert text.count("older than the code") == 2


def test_the_page_needs_nothing_else(overview: Overview) -> None:
    assert not re.findall(r"https?:|<script|<link|src=|@import|url\(", page(overview))


def test_no_results_are_no_error(tmp_path: Path) -> None:
    text = page(gather(ROOT, Results(tmp_path)))
    assert "not run" in text
    assert "None yet" in text


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium here to look at the page with")
def test_a_browser_shows_it(overview: Overview, tmp_path: Path) -> None:
    from matplotlib.image import imread

    file, picture = tmp_path / "matrix.html", tmp_path / "matrix.png"
    file.write_text(page(overview), encoding="utf-8")
    command = [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    command += [f"--user-data-dir={tmp_path / 'profile'}", "--window-size=1200,2400", f"--screenshot={picture}"]
    subprocess.run([*command, file.as_uri()], check=True, capture_output=True, timeout=120)
    pixels = imread(picture)
    grey = pixels[..., :3].mean(axis=2)
    assert grey.shape[0] == 2400
    # Writing reaches down the whole page, and is not all there is.
    assert all(0.002 < (part < 0.6).mean() < 0.5 for part in (grey[:800], grey[800:1600]))


def test_the_table_has_one_row_per_release(overview: Overview) -> None:
    lines = as_markdown(as_kept(overview)).splitlines()
    assert len(lines) == 2 + len(releases())
    assert lines[0] == "| Megatron-Core | call shapes | imports | contract | same curves | note |"
    rows = {line.split("|")[1].strip(): line for line in lines[2:]}
    assert rows["0.5.0"].startswith("| 0.5.0 | ✓ 7 | ✓ 7 | ✓ 7 | ✓ 7 |")
    assert rows["0.6.0"].startswith("| 0.6.0 | ✓ 7 | ✓ 7 | ✗ | ✓ 7 |")
    assert rows["0.7.0"].startswith("| 0.7.0 | ✓ 7 | ✓ 7 | – | ✓ 7 |")
    assert rows["0.8.0"].startswith("| 0.8.0 | ✓ 7 | ✓ 7 | ✓ 7 | ✗ |")
    assert rows["0.4.0"].endswith(f"| {release('0.4.0').note} |")


def test_the_kept_file_is_read_as_it_was_written(overview: Overview, tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    path.write_text(json.dumps(as_kept(overview)), encoding="utf-8")
    assert read_kept(path) == as_kept(overview)
    path.write_text("{}", encoding="utf-8")
    with pytest.raises(ConfigError, match="another version"):
        read_kept(path)


def test_only_what_is_between_the_markers_changes() -> None:
    text = "a\n<!-- releases -->\nold\n<!-- /releases -->\nb\n"
    assert between(text, "releases", "new") == text.replace("old", "new")
    with pytest.raises(ConfigError, match="no place for the table"):
        between("a\n", "releases", "new")


def test_the_readme_has_the_table_of_the_kept_results() -> None:
    kept = read_kept(ROOT / "matrix" / "results.json")
    assert list(kept["releases"]) == [row.version for row in releases()], "mcore-compat matrix report --readme"
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert between(readme, "releases", as_markdown(kept)) == readme, "mcore-compat matrix report --readme"
