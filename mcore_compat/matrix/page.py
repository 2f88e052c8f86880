"""The report as one HTML page that needs nothing else: no network, no script."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from html import escape

from mcore_compat.matrix.cells import Cell
from mcore_compat.matrix.chart import chart
from mcore_compat.matrix.curves import deviations
from mcore_compat.matrix.report import HEADINGS, MARKS, Overview
from mcore_compat.matrix.suites import SUITES
from mcore_compat.matrix.table import releases

# Shown first; all others are folded away.
_MAIN = {
    "supervised": ("loss", "gradient norm"),
    "ppo": ("critic/score/mean", "actor/pg_loss", "actor/entropy", "actor/grad_norm", "critic/vf_loss", "critic/kl"),
}
_STYLE = """
:root { color-scheme: light dark; --line: color-mix(in srgb, currentColor 18%, transparent) }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.5rem } h2 { font-size: 1.15rem; margin-top: 2.2rem }
table { border-collapse: collapse; width: 100% }
th, td { text-align: left; padding: .25rem .6rem; border-bottom: 1px solid var(--line); vertical-align: top }
.passed { color: #2d8a4e } .failed { color: #d4543b; font-weight: 600 } .skipped, .quiet { opacity: .65 }
.charts { display: grid; grid-template-columns: repeat(auto-fill, minmax(16rem, 1fr)); gap: 1rem }
.chart { margin: 0 } .chart svg { width: 100%; border: 1px solid var(--line); border-radius: 6px }
.chart polyline { fill: none; stroke-width: 1.6 }
figcaption, .scale { font-size: .8rem; display: flex; justify-content: space-between; gap: .5rem }
figcaption span, .scale { opacity: .65 } code { font-size: .9em }
"""


def page(overview: Overview) -> str:
    """The whole page."""
    body = [
        "<h1>mcore_compat on every release of Megatron-Core</h1>",
        f'<p class="quiet">torch {escape(overview.torch)}, Python {escape(overview.python)}, CPU.</p>',
        "<h2>Suites</h2>",
        _suites(overview),
        "<h2>Curves of all releases, over each other</h2>",
        *_curves(overview),
        "<h2>Deviations and gaps</h2>",
        _list(_deviations(overview)) or "<p>None.</p>",
        "<h2>Call shapes</h2>",
        "<p>The variant that each seam takes, named where it changes.</p>",
        _seams(),
    ]
    head = f'<meta charset="utf-8"><title>mcore_compat matrix</title><style>{_STYLE}</style>'
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{"".join(body)}</body></html>\n'


def _suites(overview: Overview) -> str:
    heads = ["release", *(f'<span title="{escape(SUITES[name].doc)}">{HEADINGS[name]}</span>' for name in HEADINGS)]
    rows = (
        [f"<b>{row.version}</b>", *(_cell(overview, name, row.version) for name in HEADINGS), escape(row.note)]
        for row in releases()
    )
    return _table([*heads, "note"], rows)


def _cell(overview: Overview, suite: str, release: str) -> str:
    cell = overview.cells[suite][release]
    count = f"{cell.passed} of {cell.passed + cell.failed}" if cell.passed + cell.failed else ""
    skips = f", {cell.skipped} skipped" if cell.skipped and cell.passed else ""
    seconds = f"{cell.seconds:.0f} s" if cell.seconds else ""
    old = "older than the code" if (suite, release) in overview.outdated else ""
    quiet = ", ".join(filter(None, [seconds, old]))
    return (
        f'<span class="{cell.status}" title="{escape(cell.reason)}">{MARKS[cell.status]} {count}{skips}</span> '
        f'<span class="quiet">{quiet or (escape(cell.reason) if cell.status == "skipped" else "")}</span>'
    )


def _curves(overview: Overview) -> Iterator[str]:
    drawn = {release: cell.series for release, cell in overview.cells["ppo"].items() if cell.series}
    if not drawn:
        yield "<p>None yet: <code>mcore-compat matrix run --suite ppo</code> draws them.</p>"
    for run, main in _MAIN.items():
        names = dict.fromkeys(name for series in drawn.values() for name in series.get(run, {}))
        rest = [name for name in names if name not in main]
        if names:
            yield f"<h3>{run}</h3>{_charts(run, [name for name in main if name in names], drawn)}"
        if rest:
            yield f"<details><summary>{len(rest)} more</summary>{_charts(run, rest, drawn)}</details>"


def _charts(run: str, names: Iterable[str], drawn: Mapping[str, Mapping[str, Mapping[str, list[float]]]]) -> str:
    figures = (
        chart(name, {release: series[run][name] for release, series in drawn.items() if name in series.get(run, {})})
        for name in names
    )
    return f'<div class="charts">{"".join(figures)}</div>'


def _deviations(overview: Overview) -> Iterator[str]:
    newest = releases()[-1].version
    expected = overview.cells["ppo"][newest].series
    for release, cell in overview.cells["ppo"].items():
        for deviation in deviations(cell.series, expected) if cell.series else []:
            yield f"<b>{release}</b> {escape(str(deviation))}"
    for suite, cells in overview.cells.items():
        for release, cell in cells.items():
            yield from _gap(suite, release, cell)


def _gap(suite: str, release: str, cell: Cell) -> Iterator[str]:
    for text in filter(None, [cell.reason, cell.note]):
        yield f"<b>{release}</b> {suite}: {escape(text)}"


def _seams() -> str:
    names = sorted({seam for row in releases() for seam in row.expect})
    rows: list[list[str]] = []
    before: Mapping[str, str] = {}
    for row in releases():
        changed = ["" if row.expect.get(name) == before.get(name) else row.expect.get(name, "") for name in names]
        if any(changed):
            rows.append(
                [f"<b>{row.version}</b>", *(f"<code>{escape(name)}</code>" if name else "" for name in changed)]
            )
        before = row.expect
    return _table(["from", *names], rows)


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = "".join(f"<th>{cell}</th>" for cell in heads)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _list(items: Iterable[str]) -> str:
    found = "".join(f"<li>{item}</li>" for item in items)
    return f"<ul>{found}</ul>" if found else ""
