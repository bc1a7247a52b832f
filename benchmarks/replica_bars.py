"""The bars of replication, from figures of one run, and the run as text."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.bars import Bar
from benchmarks.lines import OURS, page, table
from benchmarks.replica_pair import BODY, CHUNK, JAVA, PROTOCOLS
from benchmarks.replica_slaves import SLAVES
from benchmarks.results import Results

__all__ = ["bars", "memory", "text"]


def bars(results: Results) -> list[Bar]:
    """Return every bar, also those whose figures are missing."""
    return [
        *(bar for protocol in PROTOCOLS for bar in _catch_up(results, protocol)),
        *(bar for protocol in PROTOCOLS for bar in _quorum(results, protocol)),
        *(bar for protocol in PROTOCOLS for bar in _reconnect(results, protocol)),
        *_slaves(results),
    ]


def _ratio(ours: float | None, theirs: float | None, factor: float = 1.0) -> float | None:
    return factor * ours / theirs if ours is not None and theirs else None


def _detail(ours: float | None, theirs: float | None, unit: str) -> str:
    return f"{ours:,.4g}; {theirs:,.4g} {unit}" if ours is not None and theirs else ""


def _catch_up(results: Results, protocol: str) -> Iterator[Bar]:
    workload, figure = f"catch-up, {protocol}", "MB_per_s"
    unflushed = f"catch-up unflushed, {protocol}"
    ours, java = (results.value(peer, workload, figure) for peer in (OURS, JAVA))
    for variant in ("mapped", "zeroed"):
        ns = results.limit("loopback", variant, CHUNK)
        limit = CHUNK / ns * 1e3 if ns else None
        for way in (workload, unflushed):
            value = results.value(OURS, way, figure)
            detail = _detail(value, limit, "MB/s")
            name = f"{way}: against a socket, {variant}"
            yield Bar(name, _ratio(value, limit, 100), 70, "%", detail=detail)
    detail = _detail(ours, java, "MB/s")
    yield Bar(f"{workload}: against Java", _ratio(ours, java), 4, detail=detail)


def _quorum(results: Results, protocol: str) -> Iterator[Bar]:
    workload = f"quorum, {protocol}"
    for way, cores in (("one", "scheduled"), ("apart", "two cores")):
        figure = f"{way}_p50_us"
        ours, java = (results.value(peer, workload, figure) for peer in (OURS, JAVA))
        trip = results.limit("round trip", cores, BODY, "p50_us")
        for other, good, theirs in (("a round trip", 2, trip), ("Java", 1, java)):
            name = f"{workload}: one writer, {cores}, p50 against {other}"
            detail = _detail(ours, theirs, "µs")
            yield Bar(name, _ratio(ours, theirs), good, at_most=True, detail=detail)
    pairs = (("threads", "threads"), ("tasks", "threads"), ("tasks", "tasks"))
    for way, other in (*pairs, ("handles", "threads"), ("handles", "tasks")):
        many = results.value(OURS, workload, f"{way}_msgs_per_s")
        java = results.value(JAVA, workload, f"{other}_msgs_per_s")
        detail = _detail(many, java, "messages/s")
        name = f"{workload}: 32 {way} against Java's 32 {other}"
        good = 2.5 if way == "threads" else 5
        yield Bar(name, _ratio(many, java), good, detail=detail)


def _reconnect(results: Results, protocol: str) -> Iterator[Bar]:
    workload = f"reconnect, {protocol}"
    for name, what in (("cut_ms", "connection lost"), ("start_ms", "slave started")):
        ours, java = (results.value(peer, workload, name) for peer in (OURS, JAVA))
        detail = _detail(ours, java, "ms")
        name = f"{workload}: first byte after {what}"
        yield Bar(name, ours, 50, "ms", at_most=True, detail=detail)


def _slaves(results: Results) -> Iterator[Bar]:
    alone = f"{SLAVES[0]} slaves"
    for slaves in SLAVES[1:]:
        for figure in ("paced_p50_us", "paced_p99_us", "burst_p50_us", "burst_p99_us"):
            with_slaves = results.value(OURS, f"{slaves} slaves", figure)
            without = results.value(OURS, alone, figure)
            way, percentile, _ = figure.split("_")
            yield Bar(
                f"put with {slaves} slaves against none: {way}, {percentile}",
                _ratio(with_slaves, without),
                1.2,
                at_most=True,
                detail=_detail(with_slaves, without, "µs"),
            )


def memory(results: Results) -> Iterator[tuple[str, ...]]:
    """Yield (slaves, state, KiB a connection), less what the same puts take without slaves."""
    for slaves in SLAVES[1:]:
        for state in ("idle", "paced", "burst", "stalled", "stalled_sockets"):
            name = f"{state}_KiB"
            held = results.value(OURS, f"{slaves} slaves", name)
            alone = results.value(OURS, f"{SLAVES[0]} slaves", name) or 0.0
            if held is not None:
                each = (held - alone) / slaves
                yield (str(slaves), state.replace("_", ", "), f"{each:,.0f}")


def text(results: Results) -> str:
    """Return figures and bars as tables in Markdown."""
    limits = ("limit", "variant", "bytes", "ns", "spread", "MB/s", "p50 µs", "p99 µs")
    tables = [
        table(("workload", "way", "figure", "median", "spread"), _figures(results)),
        table(limits, _limits(results)),
        table(("slaves", "state", "KiB a slave"), memory(results)),
    ]
    return page(results, tables, bars(results))


def _figures(results: Results) -> Iterator[tuple[str, ...]]:
    for workload, peer in results.measured():
        for name in results.names(peer, workload):
            sample = results.figure(peer, workload, name)
            assert sample is not None
            yield (workload, peer, name, f"{sample.median:,.2f}", f"{sample.spread:.0%}")


def _limits(results: Results) -> Iterator[tuple[str, ...]]:
    for limit, variant, size, ns, moved in results.limits():
        percentiles = (results.limit(limit, variant, size, name) for name in ("p50_us", "p99_us"))
        sample = results.limit_figure(limit, variant, size)
        assert sample is not None
        yield (
            *(limit, variant, f"{size:,}", f"{ns:,.0f}"),
            *(f"{sample.spread:.0%}", f"{moved / ns * 1e3:,.0f}"),
            *(f"{value:,.1f}" if value else "" for value in percentiles),
        )
