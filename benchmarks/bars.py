"""The bars the store is held to, each computed from figures of one and the same run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from benchmarks.results import Results
from benchmarks.workloads import BY_NAME

__all__ = ["Bar", "Verdict", "bars", "floor_ns", "limit_rate"]

OURS, JAVA, BROKER = "rmqstore", "java", "java-broker"
RECORD_OF_1K = 1131
DISPATCHED = "msgs_per_s_dispatched"


class Verdict(StrEnum):
    """A value compared with its bar."""

    EXCELLENT = "excellent"
    MET = "met"
    NOT_MET = "not met"
    NOT_MEASURED = "not measured"


@dataclass(frozen=True, slots=True)
class Bar:
    """A value, and what it should be at least (or, with at_most, at most)."""

    name: str
    value: float | None
    good: float
    unit: str = "x"
    excellent: float | None = None
    at_most: bool = False
    detail: str = ""

    def _reaches(self, bar: float) -> bool:
        assert self.value is not None
        return self.value <= bar if self.at_most else self.value >= bar

    @property
    def verdict(self) -> Verdict:
        if self.value is None:
            return Verdict.NOT_MEASURED
        if self.excellent is not None and self._reaches(self.excellent):
            return Verdict.EXCELLENT
        return Verdict.MET if self._reaches(self.good) else Verdict.NOT_MET

    @property
    def wanted(self) -> str:
        """The bar as text."""
        sign = "≤" if self.at_most else "≥"
        text = f"{sign} {self.good:g} {self.unit}"
        return text if self.excellent is None else f"{text} ({sign} {self.excellent:g})"


def floor_ns(results: Results, kind: str, size: int) -> float | None:
    """Return the least a message of *size* bytes can cost from Python: what the call costs by
    itself, the object it answers, and the record in C."""
    python = {
        "put": (("put", size), ("result", None)),
        "put-many": (("put_many", size), ("results", None)),
        "get": (("body", size), ("result", None)),
    }[kind]

    parts = [
        results.limit("python", f"{name} {bytes_}" if bytes_ is not None else name)
        for name, bytes_ in python
    ]

    if kind == "get":
        parts.append(results.limit("scan", "crc", None))
    else:
        parts.append(results.limit("append", "record+unit", size))

    loop = results.limit("python", "loop")
    if loop is None or any(part is None for part in parts):
        return None

    # Each loop over calls counted its own step; one is left in.
    extra = 0.0 if kind == "put-many" else loop
    return sum(part for part in parts if part is not None) - extra


def limit_rate(results: Results, workload: str) -> tuple[str, float] | None:
    """Return the limit of a workload in its own unit, messages or MB a second, and its name."""
    sizes = {"put-100": 100, "put-1k": 1024, "put-4k": 4096}
    batches = {"put-many-100x100": 100, "put-many-100x1k": 1024}
    ns: float | None

    if workload in sizes:
        name, ns = "floor of a call", floor_ns(results, "put", sizes[workload])
    elif workload in batches:
        name, ns = "floor of a call", floor_ns(results, "put-many", batches[workload])
    elif workload == "put-durable-1":
        ns = results.limit("durable", "written before", RECORD_OF_1K)
        name = "pwrite + fdatasync"
    elif workload == "get-decoded-1k":
        name, ns = "floor of a get", floor_ns(results, "get", 1024)
    elif workload in ("arrow-no-bodies", "arrow-every-field"):
        name, ns = "walk of the records", results.limit("scan", "form", None)
    elif workload == "arrow-bodies":
        name, ns = "memcpy of the bodies", results.limit("scan", "bodies", None)
    elif workload.startswith("recover-"):
        name, ns = "scan with CRC", results.limit("scan", "crc", None)
        size = results.limit("scan", "crc", None, "bytes_per_op")
        return (name, size / ns * 1e3) if ns and size else None
    else:
        return None

    return (name, 1e9 / ns) if ns else None


def bars(results: Results) -> list[Bar]:
    """Return every bar, also those whose figures are missing."""
    return [bar for part in _PARTS for bar in part(results)]


def _ratio(above: float | None, below: float | None) -> float | None:
    return above / below if above is not None and below else None


def _against(
    results: Results, ours: str, theirs: str, name: str = DISPATCHED, peer: str = JAVA
) -> float | None:
    return _ratio(results.value(OURS, ours, name), results.value(peer, theirs, name))


def _java_of(results: Results, workload: str) -> str:
    """The Java peer of the bars: with its broker's flags, if it was measured."""
    return BROKER if BROKER in results.peers(workload) else JAVA


def _rate_text(results: Results, workload: str, name: str = DISPATCHED) -> str:
    parts = [
        f"{peer} {value:,.0f}/s"
        for peer in (OURS, JAVA, BROKER)
        if (value := results.value(peer, workload, name))
    ]
    return ", ".join(parts)


def _puts(results: Results) -> Iterator[Bar]:
    for workload, good in (("put-1k", 7), ("put-100", 8)):
        for peer, least in ((JAVA, 10), (BROKER, good)):
            yield Bar(
                f"{workload} against {peer}",
                _against(results, workload, workload, peer=peer),
                least,
                detail=_rate_text(results, workload),
            )

    for many, single, good in (
        ("put-many-100x1k", "put-1k", 5),
        ("put-many-100x100", "put-100", 10),
    ):
        batch = results.value(JAVA, many, DISPATCHED)
        yield Bar(
            f"{many} against Java's {single}",
            _against(results, many, single),
            good,
            detail=_rate_text(results, many) + (" (its own batches)" if batch else ""),
        )

    for kind, workload, size, good, excellent in (
        ("put", "put-1k", 1024, 45, 75),
        ("put-many", "put-many-100x1k", 1024, 50, 80),
    ):
        floor = floor_ns(results, kind, size)
        rate = results.value(OURS, workload, "msgs_per_s")
        share = floor * rate / 1e7 if floor and rate else None
        yield Bar(
            f"{workload} against the floor of its call",
            share,
            good,
            "%",
            excellent,
            detail=f"floor {floor:.0f} ns" if floor else "",
        )

    for peer in ("lmdb", "plain file"):
        yield Bar(
            f"put-1k against {peer}",
            _against(results, "put-1k", "put-1k", peer=peer),
            3,
            excellent=5,
        )


def _appends(results: Results) -> Iterator[Bar]:
    for size in (100, 1024, 4096):
        ours = results.limit("append", "append+unit", size)
        least = results.limit("append", "memcpy+crc", size)
        record = results.limit("append", "record+unit", size)
        text = f"{ours:.0f} ns; {least:.0f} ns" if ours and least else ""
        if size == 1024:
            yield Bar(
                "C append of 1 KiB with unit against memcpy + CRC",
                _ratio(ours, least),
                1.3,
                at_most=True,
                detail=text,
            )
        share = _ratio(record, ours)
        yield Bar(
            f"C append of {size} B with unit against the least record + unit",
            share * 100 if share else None,
            70,
            "%",
            90,
            detail=f"{ours:.0f} ns; {record:.0f} ns" if ours and record else "",
        )


def _durables(results: Results) -> Iterator[Bar]:
    name = "msgs_per_s"

    for threads, good in ((1, 1), (8, 1), (32, 2.5)):
        workload = f"put-durable-{threads}"
        yield Bar(
            f"{workload} against {_java_of(results, workload)}",
            _against(results, workload, workload, name, _java_of(results, workload)),
            good,
            detail=_rate_text(results, workload, name),
        )

    best, many = "put-durable-32-handles", "put-durable-32"
    peer = _java_of(results, many)
    ours, java = results.value(OURS, best, name), results.value(peer, many, name)
    yield Bar(
        f"{best} against 32 threads of {peer}",
        _ratio(ours, java),
        5,
        detail=f"{OURS} {ours:,.0f}/s, {peer} {java:,.0f}/s" if ours and java else "",
    )

    ours = results.value(OURS, "put-durable-1", "p50_us")
    bare = results.limit("durable", "written before", RECORD_OF_1K, "p50_us")
    yield Bar(
        "p50 of one durable writer against pwrite + fdatasync",
        _ratio(ours, bare),
        1.1,
        at_most=True,
        detail=f"{ours:.0f} µs; {bare:.0f} µs" if ours and bare else "",
    )

    yield Bar(
        "64 durable writers against one",
        _ratio(
            results.value(OURS, "put-durable-64", name), results.value(OURS, "put-durable-1", name)
        ),
        10,
    )


def _reads(results: Results) -> Iterator[Bar]:
    name = "msgs_per_s"

    yield Bar(
        f"get-decoded-1k against {_java_of(results, 'get-decoded-1k')}",
        _against(
            results, "get-decoded-1k", "get-decoded-1k", name, _java_of(results, "get-decoded-1k")
        ),
        2.4,
        detail=_rate_text(results, "get-decoded-1k", name),
    )

    floor, rate = (
        floor_ns(results, "get", 1024),
        results.value(OURS, "get-decoded-1k", "bodies_per_s"),
    )
    yield Bar(
        "get-decoded-1k against the floor of a get",
        floor * rate / 1e7 if floor and rate else None,
        50,
        "%",
        80,
        detail=f"floor {floor:.0f} ns" if floor else "",
    )

    columns = results.value(OURS, "arrow-no-bodies", name)
    yield Bar("arrow-no-bodies", columns / 1e6 if columns else None, 10, "M/s")

    ours = results.value(OURS, "arrow-bodies", "ns_per_message")
    copy = results.limit("scan", "bodies", None)
    rate = results.value(OURS, "arrow-bodies", "MB_per_s")
    yield Bar(
        "arrow-bodies against memcpy of the bodies",
        _ratio(ours, copy),
        2,
        at_most=True,
        detail=f"{ours:.0f} ns; {copy:.0f} ns a message" if ours and copy else "",
    )

    yield Bar("arrow-bodies", rate / 1e3 if rate else None, 5, "GB/s", 10)


def _recoveries(results: Results) -> Iterator[Bar]:
    ours = results.value(OURS, "recover-4g-crash", "ms")
    peer = _java_of(results, "recover-4g-crash")
    java = results.value(peer, "recover-4g-crash", "ms")

    yield Bar(
        f"recover-4g-crash against {peer}",
        _ratio(java, ours),
        4,
        detail=f"{ours:.0f} ms; Java {java:.0f} ms" if ours and java else "",
    )

    rate = results.value(OURS, "recover-4g-crash", "MB_per_s")
    scan = limit_rate(results, "recover-4g-crash")
    yield Bar(
        "recover-4g-crash against a scan with CRC",
        rate / scan[1] * 100 if rate and scan else None,
        50,
        "%",
        75,
        detail=f"{rate / 1e3:.1f} GB/s; scan {scan[1] / 1e3:.1f} GB/s" if rate and scan else "",
    )


def _not_held(results: Results, peer: str, workload: str) -> str:
    """The rate that a run at a fixed rate reached, if that was less."""
    rate = results.value(peer, workload, "msgs_per_s")
    if rate is None or BY_NAME[workload].holds(rate):
        return ""
    return f" (at {rate:,.0f}/s, rate not held)"


def _tails(results: Results) -> Iterator[Bar]:
    for workload in ("put-1k", "put-100", "put-1k-at-150k", "put-100-at-150k"):
        ours = results.value(OURS, workload, "p999_us")
        peer = _java_of(results, workload)
        java = results.value(peer, workload, "p999_us")
        yield Bar(
            f"p99.9 of {workload} against {peer}",
            _ratio(ours, java),
            1,
            at_most=True,
            detail=f"{ours:.1f} µs{_not_held(results, OURS, workload)}; "
            f"Java {java:.1f} µs{_not_held(results, peer, workload)}"
            if ours and java
            else "",
        )

        yield Bar(
            f"p99.9 of {workload}",
            ours,
            20,
            "µs",
            at_most=True,
            detail=_not_held(results, OURS, workload).strip(),
        )

    stall = results.value(OURS, "roll-over", "roll_max_us")
    yield Bar(
        "longest put at a roll-over",
        stall / 1e3 if stall is not None else None,
        1,
        "ms",
        at_most=True,
    )

    peer = _java_of(results, "roll-over")
    ours, java = (results.value(each, "roll-over", "max_us") for each in (OURS, peer))
    yield Bar(
        f"longest put of roll-over against {peer}",
        _ratio(ours, java),
        1,
        at_most=True,
        detail=f"{ours:.0f} µs; Java {java:.0f} µs" if ours and java else "",
    )

    rate, cold = (
        results.value(OURS, "roll-over", "msgs_per_s"),
        results.limit("record", "cold, with unit", 1024),
    )
    yield Bar(
        "roll-over against records into cold pages",
        rate * cold / 1e7 if rate and cold else None,
        80,
        "%",
        detail=f"{rate:,.0f}/s; {1e9 / cold:,.0f}/s" if rate and cold else "",
    )


def _costs(results: Results) -> Iterator[Bar]:
    yield Bar(
        "private memory of an open store of 100 files",
        results.value(OURS, "memory-100-files", "private_MiB"),
        50,
        "MiB",
        at_most=True,
    )
    yield Bar(
        "import of rmqstore", results.value(OURS, "import-time", "ms"), 50, "ms", at_most=True
    )


_PARTS: tuple[Callable[[Results], Iterator[Bar]], ...] = (
    _puts,
    _appends,
    _durables,
    _reads,
    _recoveries,
    _tails,
    _costs,
)
