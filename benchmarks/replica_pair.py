"""A pair of rmqstore and a pair of the Java store, in turn: catching up, quorum, reconnecting."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, closing
from pathlib import Path

from benchmarks import limits, replica_java
from benchmarks.java import WARM_UP_LEAST
from benchmarks.lines import OURS, Figures, Run, empty_folder
from benchmarks.replica_side import Relay, Side, rmqstore_side
from benchmarks.spark_data import RECORD

__all__ = [
    "BODY",
    "CHUNK",
    "JAVA",
    "PROTOCOLS",
    "WrongLog",
    "compare_logs",
    "measure_catch_up",
    "measure_quorum",
    "measure_reconnect",
]

JAVA = replica_java.NAME
LIMITS = "limits"
PROTOCOLS = ("autoswitch", "classic")
BODY = 1024
FED_RECORD = RECORD + 1
"""A little less than the size asked for: files end in blanks, and the last shall be full."""
CHUNK = 32 << 10
"""haTransferBatchSize, as both stores have it by default."""
PINGS = 20_000
PUTS, MANY_PUTS = 20_000, 200_000
"""Of one writer, and of all writers together."""
WRITERS = 32
WAYS: Mapping[str, tuple[str, int, int, int]] = {
    # Many writers come first: when it is the turn of the one, a JVM has compiled what a put is.
    "threads": ("put", WRITERS, MANY_PUTS, WARM_UP_LEAST),
    "tasks": ("tasks", WRITERS, MANY_PUTS, WARM_UP_LEAST),
    "handles": ("handles", WRITERS, MANY_PUTS, WARM_UP_LEAST),
    "one": ("put", 1, PUTS, PUTS // 4),
    "apart": ("put", 1, PUTS, PUTS // 4),
}
"""A command of the master, writers, puts that count, and puts before them."""
QUORUM_PUTS = sum(count + warm_up for _, _, count, warm_up in WAYS.values())
RECONNECTS = {OURS: 5, JAVA: 1}
"""In a round; each of Java's takes up to ten seconds."""
SETTLED_S = 1.5
"""How old a connection is when it is cut: after one that breaks at once no slave hurries."""
_PIECE = 16 << 20

StartSide = Callable[[str, str, Path, str], Side]
SIDES: Mapping[str, StartSide] = {OURS: rmqstore_side, JAVA: replica_java.java_side}


class WrongLog(Exception):
    """A slave whose log is not its master's."""


def start_of(root: Path) -> int:
    """Return the offset of the first log file of a store."""
    return min(int(path.name) for path in (root / "commitlog").iterdir())


def compare_logs(left: Path, right: Path, end: int, *, start: int = 0) -> None:
    """Raise WrongLog unless the logs of two stores have the same bytes from *start*, where a file
    begins, to *end*."""
    for name in sorted(path.name for path in (left / "commitlog").iterdir()):
        with (left / "commitlog" / name).open("rb") as one, ExitStack() as opened:
            if not start <= int(name) < end:
                continue
            try:
                other = opened.enter_context((right / "commitlog" / name).open("rb"))
            except FileNotFoundError:
                raise WrongLog(f"the slave has no log file {name}") from None
            size = min(os.fstat(one.fileno()).st_size, end - int(name))
            for at in range(0, size, _PIECE):
                asked = min(_PIECE, size - at)
                if one.read(asked) != other.read(asked):
                    raise WrongLog(f"log file {name} differs after byte {at}")


def _limit(run: Run, number: int, name: str, *arguments: object) -> None:
    try:
        for line in limits.run("loopback", *arguments):
            run.write("limit", round=number, **line)
            run.report(f"{number} {name} {line['variant']}: {line['ns']} ns")
    except limits.LimitError as error:
        run.write("limit", round=number, limit=name, error=run.clean(str(error)))


# -- catching up


def measure_catch_up(run: Run, peers: Iterable[str], size: int) -> None:
    """Measure how long an empty slave takes for a log of about *size* bytes."""
    with ExitStack() as opened:

        def limit(number: int) -> None:
            _limit_stream(run, number, size)

        jobs: list[Callable[[int], None]] = [limit]
        for protocol in PROTOCOLS:
            for peer in peers:
                run.report(f"writing the log of {peer}, {protocol}")
                root = opened.enter_context(empty_folder(run.directory / f"{peer}-{protocol}"))
                # Masters stay, warm, and are stopped while others are measured.
                master = opened.enter_context(SIDES[peer]("master", protocol, root, ""))
                end = int(master.ask("feed", size // FED_RECORD, BODY)["end"])
                master.pause()
                given = (run, peer, protocol, master, root, end)
                jobs.append(run.job(peer, f"catch-up, {protocol}", _catch_up, *given, "slave"))
                if peer == OURS:
                    # A bare connection's receiver syncs nothing either.
                    workload = f"catch-up unflushed, {protocol}"
                    jobs.append(run.job(peer, workload, _catch_up, *given, "unflushed"))
        os.sync()
        run.take_turns(jobs)


def _limit_stream(run: Run, number: int, size: int) -> None:
    run.back_memory(2 * size + size // 4)
    megabytes = max(1, size >> 20)
    with empty_folder(run.directory / LIMITS) as place:
        _limit(run, number, "loopback", "stream", place, 3, megabytes, CHUNK)


def _catch_up(
    run: Run, peer: str, protocol: str, master: Side, root: Path, end: int, role: str
) -> Figures:
    run.back_memory(end + end // 4)
    master.resume()
    try:
        # The pages that the first slave used are there for the second one, which counts.
        _follow(run, peer, protocol, master, root, end, role)
        return _follow(run, peer, protocol, master, root, end, role)
    finally:
        master.pause()


def _follow(
    run: Run, peer: str, protocol: str, master: Side, root: Path, end: int, role: str
) -> Figures:
    with empty_folder(run.directory / "slave") as copy:
        master_cpu = master.cpu_seconds()
        with SIDES[peer](role, protocol, copy, master.address) as slave:
            slave_cpu = slave.cpu_seconds()
            answer = slave.ask("follow", end)
            # An empty slave of the classic protocol begins at its master's last file.
            start = start_of(copy) if protocol == "classic" else 0
            size = end - start
            figures = {
                "MB": size / 1e6,
                "s": (answer["end_ns"] - answer["first_ns"]) / 1e9,
                "MB_per_s": size / (answer["end_ns"] - answer["first_ns"]) * 1e3,
                "first_byte_ms": (answer["first_ns"] - answer["began_ns"]) / 1e6,
                "master_cpu_s": master.cpu_seconds() - master_cpu,
                "slave_cpu_s": slave.cpu_seconds() - slave_cpu,
            }
            compare_logs(root, copy, end, start=start)
        return figures


# -- quorum


def measure_quorum(run: Run, peers: Iterable[str]) -> None:
    """Measure puts that both sides of a pair acknowledge, beside bare round trips."""

    def limit(number: int) -> None:
        _limit(run, number, "round trip", "ping", 3, PINGS, BODY)

    run.take_turns([limit, *_jobs(run, peers, "quorum", _quorum)])


def _jobs(
    run: Run, peers: Iterable[str], part: str, job: Callable[[Run, str, str], Figures]
) -> list[Callable[[int], None]]:
    """One for each protocol and peer."""
    return [
        run.job(peer, f"{part}, {protocol}", job, run, peer, protocol)
        for protocol in PROTOCOLS
        for peer in peers
    ]


def _quorum(run: Run, peer: str, protocol: str) -> Figures:
    run.back_memory(QUORUM_PUTS * RECORD * 2)
    with empty_folder(run.directory / "pair") as place, ExitStack() as opened:
        roots = place / "master", place / "slave"
        master = opened.enter_context(SIDES[peer]("master", protocol, roots[0], ""))
        slave = opened.enter_context(SIDES[peer]("slave", protocol, roots[1], master.address))
        master.ask("sync")
        figures = {}
        cores = sorted(os.sched_getaffinity(0))
        for way, (command, writers, count, warm_up) in WAYS.items():
            if way == "handles" and peer == JAVA:
                continue  # Its way to have many under way is that of "tasks".
            if way == "apart":
                master.pin({cores[0]})
                slave.pin({cores[-1]})
            answer = master.ask(command, writers, count, warm_up, BODY)
            if way == "apart":
                master.pin(set(cores))
                slave.pin(set(cores))
            for name in ("msgs_per_s", "p50_us", "p99_us"):
                figures[f"{way}_{name}"] = answer[name]
            slave.ask("follow", answer["end"])
        compare_logs(roots[0], roots[1], int(answer["end"]))
    return figures


# -- reconnecting


def measure_reconnect(run: Run, peers: Iterable[str]) -> None:
    """Measure how long a slave takes from its lost connection, or from its start, to the first
    byte of log that it did not have."""
    run.take_turns(_jobs(run, peers, "reconnect", _reconnect))


def _reconnect(run: Run, peer: str, protocol: str) -> Figures:
    start = SIDES[peer]
    with empty_folder(run.directory / "pair") as place, ExitStack() as opened:
        master = opened.enter_context(start("master", protocol, place / "master", ""))
        relay = opened.enter_context(closing(Relay(master.address)))
        slave = start("slave", protocol, place / "slave", relay.address)
        with slave:
            slave.ask("follow", master.ask("feed", 1000, BODY)["end"])
            cut = [_cut(master, relay, slave) for _ in range(RECONNECTS[peer])]
            again = [_join(master, slave) for _ in range(RECONNECTS[peer]) if peer == OURS]
        if peer == JAVA:  # its role ends with its process
            end = master.ask("feed", 100, BODY)["end"]
            with start("slave", protocol, place / "slave", relay.address) as slave:
                answer = slave.ask("follow", end)
                again.append((answer["first_ns"] - answer["began_ns"]) / 1e6)
    return {
        "cut_ms": statistics.median(cut),
        "cut_max_ms": max(cut),
        "start_ms": statistics.median(again),
        "start_max_ms": max(again),
    }


def _cut(master: Side, relay: Relay, slave: Side) -> float:
    """What the master has more than the slave is there before the connection is lost."""
    time.sleep(SETTLED_S)
    slave.ask("arm")
    relay.hold()
    end = master.ask("feed", 100, BODY)["end"]
    began = time.monotonic_ns()
    relay.cut()
    return (int(slave.ask("follow", end)["first_ns"]) - began) / 1e6


def _join(master: Side, slave: Side) -> float:
    slave.ask("leave")
    slave.ask("arm")
    end = master.ask("feed", 100, BODY)["end"]
    began = int(slave.ask("join")["began_ns"])
    return (int(slave.ask("follow", end)["first_ns"]) - began) / 1e6
