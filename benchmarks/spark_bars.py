"""The bars of the Spark source, from figures of one run, and the run as text."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.bars import Bar
from benchmarks.lines import OURS, page, table
from benchmarks.results import Results
from benchmarks.spark_rows import CEILING, COUNTS, JVM, OUTSIDE, PARQUET
from benchmarks.spark_stores import BIG, LATE, RARE_TOPIC, WHOLE

__all__ = ["bars", "text"]

_PIPELINES = ("count", "audit", "statistics", "compare")
_RATE = "MB_per_s"


def bars(results: Results) -> list[Bar]:
    """Return every bar, also those whose figures are missing."""
    return [
        *_rows(results),
        *_jvm_rows(results),
        *_pipelines(results),
        *_stores(results),
        *_streams(results),
    ]


def _against(results: Results, workload: str, peer: str, factor: float = 1.0) -> float | None:
    ours, theirs = (results.value(each, workload, _RATE) for each in (OURS, peer))
    return factor * ours / theirs if ours and theirs else None


def _both(results: Results, workload: str, peer: str) -> str:
    ours, theirs = (results.value(each, workload, _RATE) for each in (OURS, peer))
    return f"{ours:,.0f} MB/s; {theirs:,.0f} MB/s" if ours and theirs else ""


def _rows(results: Results) -> Iterator[Bar]:
    for workload in ("all-noop", "all-agg"):
        name = f"{workload} against the ceiling of ready-made batches"
        value = _against(results, workload, CEILING, 100)
        yield Bar(name, value, 90, "%", detail=_both(results, workload, CEILING))
    for workload in ("all-noop", "all-agg", "body-agg"):
        value = _against(results, workload, PARQUET)
        yield Bar(f"{workload} against Parquet", value, 1, detail=_both(results, workload, PARQUET))
    for columns in ("narrow-2", "narrow-5", "no-body"):
        for sink in ("noop", "agg"):
            workload = f"{columns}-{sink}"
            if workload in results.workloads():
                value = _against(results, workload, PARQUET)
                detail = _both(results, workload, PARQUET)
                yield Bar(f"{workload} against Parquet", value, 0.5, detail=detail)


_JVM_BARS = {
    "all-noop": 3.0,
    "body-noop": 3.0,
    "body-agg": 3.0,
    "no-body-noop": 2.0,
    "narrow-2-noop": 1.5,
    "narrow-5-noop": 1.5,
    "one-queue": 4.0,
    "one-tag": 4.0,
    "late-half": 4.0,
}
"""How many times Parquet's rate the reader in the JVM should have."""


def _jvm_rows(results: Results) -> Iterator[Bar]:
    for workload, factor in _JVM_BARS.items():
        ours, theirs = (results.value(each, workload, _RATE) for each in (JVM, PARQUET))
        value = ours / theirs if ours and theirs else None
        ceiling = results.value(OUTSIDE, workload, _RATE)
        detail = f"{ours:,.0f} MB/s; {theirs:,.0f} MB/s" if ours and theirs else ""
        if detail and ceiling:
            detail += f"; the decoder alone {ceiling:,.0f} MB/s"
        yield Bar(f"{workload} in the JVM against Parquet", value, factor, detail=detail)
    for workload in COUNTS:
        rate = results.value(JVM, workload, _RATE)
        yield Bar(f"{workload} in the JVM", rate / 1e3 if rate else None, 6, "GB/s")
    rare, whole = (results.value(JVM, name, _RATE) for name in (RARE_TOPIC, WHOLE))
    yield Bar(f"{RARE_TOPIC} against the {WHOLE}", rare / whole if rare and whole else None, 20)
    read, held = (results.value(JVM, LATE, name) for name in ("MiB_read", "MiB_held"))
    yield Bar(
        f"read of the files that can hold the {LATE}",
        100 * read / held if read and held else None,
        105,
        "%",
        at_most=True,
        detail=f"{read:,.0f} MiB; {held:,.0f} MiB" if read and held else "",
    )


def _pipelines(results: Results) -> Iterator[Bar]:
    for name in _PIPELINES:
        rate = results.value(OURS, name, _RATE)
        yield Bar(f"{name}, from the page cache", rate / 1e3 if rate else None, 3, "GB/s")


def _stores(results: Results) -> Iterator[Bar]:
    for name in ("planning, cold", "planning", "planning, topic"):
        count = results.value(OURS, name, "partitions")
        detail = f"{count:.0f} partitions" if count else ""
        seconds = results.value(OURS, name, "s")
        yield Bar(f"{name}, {BIG}", seconds, 2, "s", at_most=True, detail=detail)
    seconds = results.value(JVM, "planning", "s")
    yield Bar(f"planning in the JVM, {BIG}", seconds, 2, "s", at_most=True)
    memory = results.value(OURS, BIG, "worker_MiB")
    yield Bar(f"memory of a worker, {BIG}", memory, 300, "MiB", at_most=True)


def _streams(results: Results) -> Iterator[Bar]:
    for workload in results.workloads():
        if workload.startswith("stream"):
            middle = results.value(OURS, workload, "newest_p50_ms")
            worst = results.value(OURS, workload, "newest_p99_ms")
            yield Bar(f"{workload}: newest row, median", middle, 1000, "ms", at_most=True)
            yield Bar(f"{workload}: newest row, p99", worst, 1000, "ms", at_most=True)


def text(results: Results) -> str:
    """Return figures and bars as tables in Markdown."""
    head = ("workload", "way", "s", "MB/s", "spread", "CPU s", "of the ceiling", "of Parquet")
    tables = [
        table(head, _figures(results)),
        table(("other figure", "of", "value", "spread"), _others(results)),
    ]
    return page(results, tables, bars(results))


def _figures(results: Results) -> Iterator[tuple[str, ...]]:
    for workload, peer in results.measured():
        rate, cpu = (results.figure(peer, workload, name) for name in (_RATE, "cpu_s"))
        seconds = results.value(peer, workload, "s")
        if rate is None or cpu is None or seconds is None:
            continue
        shares = []
        for other in (CEILING, PARQUET):
            theirs = results.value(other, workload, _RATE)
            shares.append(f"{rate.median / theirs:.0%}" if theirs and other != peer else "")
        yield (
            *(workload, peer, f"{seconds:.2f}", f"{rate.median:,.0f}", f"{rate.spread:.0%}"),
            *(f"{cpu.median:.2f}", *shares),
        )


def _others(results: Results) -> Iterator[tuple[str, ...]]:
    common = {_RATE, "cpu_s"}
    for workload, peer in results.measured():
        names = results.names(peer, workload)
        for name in names:
            if name in common or (name == "s" and _RATE in names):
                continue
            sample = results.figure(peer, workload, name)
            assert sample is not None
            yield (f"{workload}: {name}", peer, f"{sample.median:,.2f}", f"{sample.spread:.0%}")
