"""Plots as SVG text, to stand inside of a page: lines over a few labelled places, and bars."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

__all__ = ["COLOURS", "bar_chart", "line_chart", "number"]

# By who it is, so that a peer looks the same in every plot; limits are grey and dashed.
COLOURS: Mapping[str, str] = {
    "rmqstore": "#c0392b",
    "java": "#2471a3",
    "lmdb": "#1e8449",
    "rocksdict": "#b9770e",
    "sqlite3": "#7d3c98",
    "plain file": "#117a65",
}
LIMIT_COLOUR = "#7f8c8d"
WIDTH, HEIGHT = 560, 330
LEFT, RIGHT, TOP, BOTTOM = 64, 150, 34, 44
BAR_HEIGHT = 20


def number(value: float) -> str:
    """Return a value with three digits and a unit prefix."""
    for factor, suffix in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if abs(value) >= factor:
            return f"{value / factor:.3g}{suffix}"
    return f"{value:.3g}"


def line_chart(
    title: str,
    places: Sequence[str],
    series: Mapping[str, Sequence[float | None]],
    *,
    unit: str,
    logarithmic: bool = True,
) -> str:
    """Return lines over *places*, one value of each series for each place; None is a gap.

    Empty text when there is nothing to show.
    """
    values = [value for line in series.values() for value in line if value]
    if not values:
        return ""
    low, high = _bounds(values, logarithmic)
    width, height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def x(index: int) -> float:
        return LEFT + width * (index + 0.5) / len(places)

    def y(value: float) -> float:
        share = (
            (math.log(value) - math.log(low)) / (math.log(high) - math.log(low))
            if logarithmic
            else (value - low) / (high - low)
        )
        return TOP + height * (1 - share)

    parts = [_text(LEFT, 18, title, weight="bold"), _text(LEFT, TOP - 3, unit, size=10)]
    for tick in _ticks(low, high, logarithmic):
        parts.append(
            f'<line x1="{LEFT}" x2="{LEFT + width}" y1="{y(tick):.1f}" y2="{y(tick):.1f}" '
            'stroke="#ddd"/>'
        )
        parts.append(_text(LEFT - 6, y(tick) + 4, number(tick), anchor="end", size=10))
    for index, place in enumerate(places):
        parts.append(_text(x(index), HEIGHT - BOTTOM + 18, place, anchor="middle", size=11))
    labels = []
    for name, line in series.items():
        points = [(x(i), y(value)) for i, value in enumerate(line) if value]
        if not points:
            continue
        colour = COLOURS.get(name, LIMIT_COLOUR)
        dash = "" if name in COLOURS else ' stroke-dasharray="5 3"'
        joined = " ".join(f"{a:.1f},{b:.1f}" for a, b in points)
        parts.append(
            f'<polyline points="{joined}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>'
        )
        parts += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3" fill="{colour}"/>' for a, b in points]
        labels.append((points[-1][1], name, colour))
    parts += _labels(labels, LEFT + width + 6)
    return _svg(WIDTH, HEIGHT, parts)


def bar_chart(title: str, rows: Sequence[tuple[str, str, float]], *, unit: str) -> str:
    """Return bars of (label, whose colour, value), from zero; empty text when there are none."""
    if not rows:
        return ""

    left = 190
    width = WIDTH - left - 90
    most = max(value for _, _, value in rows) or 1.0
    parts = [_text(8, 18, f"{title}, {unit}", weight="bold")]

    for index, (label, whose, value) in enumerate(rows):
        top = 30 + index * (BAR_HEIGHT + 5)
        colour = COLOURS.get(whose, LIMIT_COLOUR)
        length = width * value / most
        parts.append(_text(left - 6, top + 14, label, anchor="end", size=11))
        parts.append(
            f'<rect x="{left}" y="{top}" width="{length:.1f}" height="{BAR_HEIGHT}" '
            f'fill="{colour}"/>'
        )
        parts.append(_text(left + length + 5, top + 14, number(value), size=11))

    return _svg(WIDTH, 40 + len(rows) * (BAR_HEIGHT + 5), parts)


def _bounds(values: Sequence[float], logarithmic: bool) -> tuple[float, float]:
    low, high = min(values), max(values)
    if not logarithmic:
        return 0.0, high * 1.05
    low, high = low / 1.25, high * 1.25
    return low, high if high > low else low * 2


def _ticks(low: float, high: float, logarithmic: bool) -> list[float]:
    if not logarithmic:
        step = 10 ** math.floor(math.log10(high))
        step = step if high / step >= 4 else step / (2 if high / step >= 2 else 5)
        return [step * i for i in range(int(high / step) + 1)]
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    wide = high / low > 300
    ticks = [10.0**d * m for d in decades for m in ((1,) if wide else (1, 2, 5))]
    return [tick for tick in ticks if low <= tick <= high]


def _labels(labels: Sequence[tuple[float, str, str]], x: float) -> list[str]:
    """Names at the ends of their lines, moved apart where they would lie on one another."""
    parts = []
    last = -math.inf
    for y, name, colour in sorted(labels):
        last = max(y + 4, last + 13)
        parts.append(_text(x, last, name, size=11, colour=colour))
    return parts


def _text(
    x: float,
    y: float,
    text: str,
    *,
    anchor: str = "start",
    size: int = 12,
    weight: str = "normal",
    colour: str = "#222",
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" '
        f'font-weight="{weight}" fill="{colour}">{escape(text)}</text>'
    )


def _svg(width: int, height: int, parts: Sequence[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" font-family="sans-serif">{"".join(parts)}</svg>'
    )
