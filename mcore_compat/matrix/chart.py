"""A small line chart as SVG: the curves of all releases over each other, one line for each different curve."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

WIDTH, HEIGHT, MARGIN = 260, 110, 6
COLOURS = ("#3b6fd4", "#d4543b", "#3b9d5f", "#9a52c7", "#c08a1e", "#1f9aa8")


def chart(title: str, curves: Mapping[str, Sequence[float]]) -> str:
    """Draw curves of one name.

    Args:
        title: Shown above, with the number of different curves.
        curves: Release to values, one per step.

    Returns:
        A ``<figure>``; each line's tooltip names the releases that it stands for.
    """
    groups: dict[tuple[float, ...], list[str]] = {}
    for release, values in curves.items():
        groups.setdefault(tuple(values), []).append(release)
    everything = [value for values in groups for value in values]
    low, high = (min(everything), max(everything)) if everything else (0.0, 0.0)
    lines = [
        _line(values, names, COLOURS[index % len(COLOURS)], low, high)
        for index, (values, names) in enumerate(groups.items())
    ]
    said = f"{len(curves)} releases" + (f", {len(groups)} different curves" if len(groups) > 1 else "")
    return (
        f'<figure class="chart"><figcaption><b>{escape(title)}</b> <span>{said}</span></figcaption>'
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">{"".join(lines)}</svg>'
        f'<div class="scale"><span>{low:.4g}</span><span>{high:.4g}</span></div></figure>'
    )


def _line(values: Sequence[float], names: Sequence[str], colour: str, low: float, high: float) -> str:
    across = (WIDTH - 2 * MARGIN) / max(len(values) - 1, 1)
    up = (HEIGHT - 2 * MARGIN) / (high - low) if high > low else 0.0
    base = HEIGHT - MARGIN if high > low else HEIGHT / 2
    points = " ".join(
        f"{MARGIN + step * across:.1f},{base - (value - low) * up:.1f}" for step, value in enumerate(values)
    )
    label = escape(", ".join(names))
    return f'<polyline points="{points}" stroke="{colour}"><title>{label}</title></polyline>'
