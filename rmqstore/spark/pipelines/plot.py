"""Statistics as a picture: PNG by matplotlib, or HTML with a drawing of our own in it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path

from rmqstore.errors import ArgumentError, MissingExtraError
from rmqstore.spark.pipelines.report import bytes_text, time_text
from rmqstore.spark.pipelines.statistics import SIZE_CLASSES, Statistics

__all__ = ["plot"]

_TOPICS_MAX = 20
_COLOUR = "#3b6ea5"
_INK = "#222222"
_PALE = "#777777"

_WIDTH = 900
_LABEL = 260
_ROW = 24

Bars = Sequence[tuple[str, int, str]]
"""Label, length and the text at its end."""


def plot(statistics: Statistics, path: str | os.PathLike[str]) -> Path:
    """Draw *statistics* into the file *path*, a .png or a .html, and return its path.

    Bytes and messages of the largest topics, and how the sizes of records are spread. A PNG needs
    matplotlib and raises MissingExtraError without; HTML stands alone. Raises ArgumentError for
    another ending.
    """
    target = Path(path)
    drawings = {".png": _png, ".html": _html, ".htm": _html}
    draw: Callable[[Statistics, Path], None] | None = drawings.get(target.suffix.lower())
    if draw is None:
        raise ArgumentError(
            f"the plot {target} has the suffix {target.suffix!r}; give .png or .html"
        )
    draw(statistics, target)
    return target


def charts(statistics: Statistics) -> dict[str, Bars]:
    """Return what is drawn, by title: bars of the largest topics, and of the classes of size."""
    sums: dict[str, list[int]] = {}
    sizes = [0] * SIZE_CLASSES
    for queue in statistics.queues:
        topic = sums.setdefault(queue.topic, [0, 0])
        topic[0] += queue.bytes
        topic[1] += queue.messages
        sizes = [a + b for a, b in zip(sizes, queue.sizes, strict=True)]

    largest = sorted(sums.items(), key=lambda each: -each[1][0])
    shown, rest = largest[:_TOPICS_MAX], largest[_TOPICS_MAX:]
    if rest:
        name = f"{len(rest)} other topics"
        shown.append((name, [sum(each[1][0] for each in rest), sum(each[1][1] for each in rest)]))

    used = [number for number, count in enumerate(sizes) if count] or [0]

    return {
        "Bytes by topic": [(name, both[0], bytes_text(both[0])) for name, both in shown],
        "Messages by topic": [(name, both[1], f"{both[1]:,}") for name, both in shown],
        "Records by size": [
            (_class_text(number), sizes[number], f"{sizes[number]:,}")
            for number in range(used[0], used[-1] + 1)
        ],
    }


def _class_text(number: int) -> str:
    return f"from {bytes_text(1 << number)}"


def _heading(statistics: Statistics) -> str:
    first = min((each.min_store_timestamp for each in statistics.queues), default=None)
    last = max((each.max_store_timestamp for each in statistics.queues), default=None)
    return (
        f"{statistics.messages:,} messages, {bytes_text(statistics.bytes)}, "
        f"stored from {time_text(first)} to {time_text(last)}"
    )


def _png(statistics: Statistics, target: Path) -> None:
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError(
            f"{target}: a plot as PNG needs the package matplotlib: pip install matplotlib, or "
            "write a .html"
        ) from error

    drawn = charts(statistics)
    heights = [max(len(bars), 1) + 2 for bars in drawn.values()]

    figure = Figure(figsize=(9, 0.28 * sum(heights) + 1.2), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(_heading(statistics), color=_INK, fontsize=11)
    axes = figure.subplots(len(drawn), 1, height_ratios=heights, squeeze=False)[:, 0]

    for axis, (title, bars) in zip(axes, drawn.items(), strict=True):
        rows = range(len(bars))
        drawing = axis.barh(rows, [length for _, length, _ in bars], color=_COLOUR)
        axis.bar_label(drawing, [text for _, _, text in bars], padding=3, fontsize=8)
        axis.set_yticks(rows, [_plain(label) for label, _, _ in bars], fontsize=8)
        axis.invert_yaxis()
        axis.set_title(title, loc="left", fontsize=10)
        axis.margins(x=0.15)
        axis.get_xaxis().set_visible(False)
        axis.spines[["top", "right", "bottom"]].set_visible(False)

    figure.savefig(target, format="png", dpi=120)


def _plain(label: str) -> str:
    # A topic may have what matplotlib takes for the marks of a formula.
    return label.replace("$", r"\$")


def _html(statistics: Statistics, target: Path) -> None:
    heading = escape(_heading(statistics))
    parts = [
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f"<title>{heading}</title>\n"
        f"<style>body {{ font: 14px sans-serif; color: {_INK}; margin: 2em; }}</style>\n"
        f"</head>\n<body>\n<h1>Messages of a store</h1>\n<p>{heading}</p>\n"
    ]
    for title, bars in charts(statistics).items():
        parts.append(f"<h2>{escape(title)}</h2>\n{_svg(title, bars)}\n")
    parts.append("</body>\n</html>\n")
    target.write_text("".join(parts), encoding="utf-8")


def _svg(title: str, bars: Bars) -> str:
    longest = max((length for _, length, _ in bars), default=0) or 1
    room = _WIDTH - _LABEL - 120
    height = _ROW * max(len(bars), 1)

    lines = [
        f'<svg role="img" aria-label="{escape(title)}" width="{_WIDTH}" height="{height}" '
        f'viewBox="0 0 {_WIDTH} {height}" font-size="13">'
    ]

    for number, (label, length, text) in enumerate(bars):
        top = number * _ROW
        width = max(length / longest * room, 1)
        lines += [
            f'<text x="{_LABEL - 8}" y="{top + 16}" text-anchor="end">{escape(label)}</text>',
            f'<rect x="{_LABEL}" y="{top + 4}" width="{width:.1f}" height="{_ROW - 8}" '
            f'fill="{_COLOUR}"/>',
            f'<text x="{_LABEL + width + 6:.1f}" y="{top + 16}" fill="{_PALE}">'
            f"{escape(text)}</text>",
        ]

    return "\n".join([*lines, "</svg>"])
