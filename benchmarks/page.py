"""The report as one page of HTML that needs nothing else, and as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from benchmarks.bars import Verdict, bars, floor_ns, limit_rate
from benchmarks.charts import bar_chart, line_chart
from benchmarks.results import Results
from benchmarks.workloads import WORKLOADS

__all__ = ["html", "text"]

PERCENTILES = ("p50_us", "p99_us", "p999_us", "p9999_us", "max_us")
STYLE = """
body { font: 15px/1.45 sans-serif; max-width: 76rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; margin: 1rem 0 } caption { text-align: left; font-weight: bold }
td, th { padding: .2rem .7rem; border-bottom: 1px solid #ddd; text-align: right; font-size: 13px }
td:first-child, th:first-child, td.left { text-align: left }
.excellent, .met { color: #1e8449; font-weight: bold }
.not-met { color: #c0392b; font-weight: bold }
.not-measured { color: #7f8c8d } svg { margin: .5rem 1rem .5rem 0; max-width: 100% }
"""


def text(results: Results) -> str:
    """Return both tables as lines."""
    rows = [("workload", "peer", "value", "spread", "x Java", "% of limit"), *_rows(results)]
    parts = [*_columns(rows), "", *_columns(_bar_rows(results))]
    parts += ["", *_paced(results), *results.memory()]
    parts += [f"{peer} skipped: {reason}" for peer, reason in results.skipped.items()]
    parts += [f"FAILED {peer} {what}: {why}" for peer, what, why in results.errors]
    return "\n".join(parts)


def html(results: Results) -> str:
    """Return the page."""
    machine = "".join(
        f"<tr><td>{escape(name)}</td><td class=left>{escape(str(value))}</td></tr>"
        for name, value in results.machine.items()
        if name != "type"
    )
    bad = "".join(
        f"<li>{escape(f'{peer}, {what}: {why}')}</li>"
        for peer, what, why in [
            *results.errors,
            *((peer, "skipped", reason) for peer, reason in results.skipped.items()),
        ]
    )
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>rmqstore: how fast</title>
<style>{STYLE}</style></head><body>
<h1>rmqstore: how fast</h1>
<p>Medians of {results.rounds} rounds; spread is the distance of the extremes as a share of the
median. What each figure means, and how to make this page, is in benchmarks/README.md.</p>
{_bar_table(results)}
<h2>Plots</h2>
{"".join(_charts(results))}
<h2>Every figure</h2>
{_value_table(results)}
{_latency_table(results)}
{_limit_table(results)}
<p>{"<br>".join(map(escape, [*_paced(results), *results.memory()]))}</p>
{f"<h2>Failed or left out</h2><ul>{bad}</ul>" if bad else ""}
<h2>Machine</h2><table>{machine}</table>
</body></html>
"""


# -- rows, for both


def _name_of(results: Results, peer: str, workload: str) -> str | None:
    """The figure by which peers of this workload are compared."""
    wanted = "MB_per_s" if workload.startswith("recover-") else "msgs_per_s_dispatched"
    for name in (wanted, "msgs_per_s", "private_MiB", "ms"):
        if results.figure(peer, workload, name):
            return name
    return None


def _rows(results: Results) -> Iterator[tuple[str, ...]]:
    units = {"MB_per_s": "MB/s", "private_MiB": "MiB", "ms": "ms"}
    for workload in results.workloads():
        limit = limit_rate(results, workload)
        for peer in results.peers(workload):
            name = _name_of(results, peer, workload)
            sample = results.figure(peer, workload, name) if name else None
            if name is None or sample is None:
                continue
            java = results.value("java", workload, name)
            yield (
                workload,
                peer,
                f"{sample.median:,.0f} {units.get(name, '/s')}"
                if sample.median >= 100
                else f"{sample.median:.1f} {units.get(name, '/s')}",
                f"{sample.spread:.0%}",
                f"{sample.median / java:.2f}" if java else "",
                f"{sample.median / limit[1]:.0%}" if limit else "",
            )
        if limit:
            unit = "MB/s" if workload.startswith("recover-") else "/s"
            yield (workload, f"limit: {limit[0]}", f"{limit[1]:,.0f} {unit}", "", "", "")


def _paced(results: Results) -> Iterator[str]:
    """Whether the puts at a fixed rate kept to it: the percentiles of one that did not are those of
    a queue that grows."""
    for planned in (each for each in WORKLOADS if each.rate):
        workload = planned.name
        for peer in results.peers(workload):
            sample = results.figure(peer, workload, "msgs_per_s")
            assert sample is not None
            late = sum(not planned.holds(value) for value in sample.values)
            yield (
                f"{workload}, {peer}: {sample.median:,.0f} of {planned.rate:,}/s reached, "
                + (f"rate not held in {late} of {len(sample.values)} rounds" if late else "held")
            )


def _bar_rows(results: Results) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [("bar", "value", "wanted", "", "")]
    for bar in bars(results):
        value = "" if bar.value is None else f"{bar.value:.3g} {bar.unit}"
        rows.append((bar.name, value, bar.wanted, str(bar.verdict), bar.detail))
    return rows


def _columns(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


# -- tables


def _table(caption: str, rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(cell)}</th>" for cell in rows[0])
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows[1:]
    )
    return f"<table><caption>{escape(caption)}</caption><tr>{head}</tr>{body}</table>"


def _bar_table(results: Results) -> str:
    body = ""
    for name, value, wanted, verdict, detail in _bar_rows(results)[1:]:
        mark = str(Verdict(verdict)).replace(" ", "-")
        body += (
            f"<tr><td>{escape(name)}</td><td>{escape(value)}</td><td>{escape(wanted)}</td>"
            f'<td class="{mark}">{escape(verdict)}</td><td class=left>{escape(detail)}</td></tr>'
        )
    return (
        "<table><caption>Bars: met, or excellent where the value in brackets is reached</caption>"
        f"<tr><th>bar</th><th>value</th><th>wanted</th><th></th><th></th></tr>{body}</table>"
    )


def _value_table(results: Results) -> str:
    head = ("workload", "peer", "median", "spread", "x Java", "of the limit")
    return _table("Throughput, queues complete where there are queues", [head, *_rows(results)])


def _latency_table(results: Results) -> str:
    head = ("workload", "peer", "p50 µs", "p99 µs", "p99.9 µs", "p99.99 µs", "max µs")
    rows: list[Sequence[str]] = [head]
    for workload in results.workloads():
        for peer in results.peers(workload):
            found = [results.value(peer, workload, name) for name in PERCENTILES]
            if found[0] is not None:
                rows.append((workload, peer, *(f"{value or 0:,.2f}" for value in found)))
    return _table("Time of single calls", rows)


def _limit_table(results: Results) -> str:
    rows: list[Sequence[str]] = [("limit", "variant", "bytes", "ns", "MB/s")]
    for limit, variant, size, ns, bytes_per_op in results.limits():
        rate = f"{bytes_per_op / ns * 1e3:,.0f}" if bytes_per_op else ""
        rows.append((limit, variant, str(size or ""), f"{ns:,.1f}", rate))
    return _table("Limits of this machine, and the product's append in C", rows)


# -- plots


def _charts(results: Results) -> Iterator[str]:
    yield from _size_charts(results)
    yield from _thread_charts(results)

    for workload in ("put-1k", "put-durable-1"):
        series = {
            peer: [results.value(peer, workload, name) for name in PERCENTILES]
            for peer in results.peers(workload)
        }
        places = ("p50", "p99", "p99.9", "p99.99", "max")
        yield line_chart(f"Time of a call, {workload}", places, series, unit="µs")

    for workload, title, name, unit in (
        ("get-decoded-1k", "Reading back", "msgs_per_s", "messages a second"),
        ("recover-4g-crash", "Recovery of 4 GiB after a crash", "MB_per_s", "MB a second"),
    ):
        yield bar_chart(title, _with_limit(results, workload, name), unit=unit)

    columns = [
        (workload, "rmqstore", value)
        for workload in ("arrow-no-bodies", "arrow-every-field", "arrow-bodies")
        if (value := results.value("rmqstore", workload, "msgs_per_s"))
    ]
    yield bar_chart("Arrow columns", columns, unit="records a second")

    yield _append_chart(results)


def _with_limit(results: Results, workload: str, name: str) -> list[tuple[str, str, float]]:
    rows = [
        (peer, peer, value)
        for peer in results.peers(workload)
        if (value := results.value(peer, workload, name))
    ]
    limit = limit_rate(results, workload)
    return [*rows, (limit[0], "limit", limit[1])] if rows and limit else rows


def _size_charts(results: Results) -> Iterator[str]:
    for title, kind, names in (
        (
            "Put, one thread, against body size",
            "put",
            {"100 B": "put-100", "1 KiB": "put-1k", "4 KiB": "put-4k"},
        ),
        (
            "Put, 100 a call, against body size",
            "put-many",
            {"100 B": "put-many-100x100", "1 KiB": "put-many-100x1k"},
        ),
    ):
        peers = dict.fromkeys(peer for name in names.values() for peer in results.peers(name))
        series: dict[str, list[float | None]] = {
            peer: [results.value(peer, name, "msgs_per_s_dispatched") for name in names.values()]
            for peer in peers
        }
        floors = [floor_ns(results, kind, size) for size in (100, 1024, 4096)[: len(names)]]
        series["floor of a call"] = [1e9 / floor if floor else None for floor in floors]
        yield line_chart(title, list(names), series, unit="messages a second")


def _thread_charts(results: Results) -> Iterator[str]:
    puts = {1: "put-1k", 2: "put-threads-2", 4: "put-threads-4", 8: "put-threads-8"}
    durables = {count: f"put-durable-{count}" for count in (1, 8, 32, 64)}
    for title, names, figure in (
        ("Put of 1 KiB against threads", puts, "msgs_per_s_dispatched"),
        ("Durable put of 1 KiB against threads", durables, "msgs_per_s"),
    ):
        peers = dict.fromkeys(
            peer for count, name in names.items() if count > 1 for peer in results.peers(name)
        )
        series: dict[str, list[float | None]] = {
            peer: [results.value(peer, name, figure) for name in names.values()] for peer in peers
        }
        if figure == "msgs_per_s":
            limit = limit_rate(results, "put-durable-1")
            series["pwrite + fdatasync"] = [limit[1] if limit else None] * len(names)
        places = [str(count) for count in names]
        yield line_chart(title, places, series, unit="messages a second")


def _append_chart(results: Results) -> str:
    rows = [
        (f"{variant}, {size} B", whose, ns)
        for size in (100, 1024, 4096)
        for variant, whose in (
            ("memcpy+crc", "limit"),
            ("record+unit", "limit"),
            ("append+unit", "rmqstore"),
        )
        if (ns := results.limit("append", variant, size))
    ]
    return bar_chart("One record in C, warm pages", rows, unit="ns")
