"""What slaves cost their master: the time of its puts into its own log, and memory."""

from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path

from benchmarks.lines import OURS, Figures, Run, empty_folder
from benchmarks.processes import Peak
from benchmarks.replica_pair import BODY
from benchmarks.replica_side import Side, rmqstore_side
from benchmarks.spark_data import RECORD

__all__ = ["SLAVES", "measure_slaves"]

SLAVES = (0, 1, 8)
RATE, PACED = 2_000, 10_000
BURST = 200_000
STALLED_BYTES = 256 << 20
"""What the master writes while its slaves are stopped."""
_POLL_S = 0.02
_PAGE_KiB = 4


def measure_slaves(run: Run) -> None:
    """Measure a master with different numbers of slaves, each in a process of its own."""
    run.take_turns([run.job(OURS, f"{slaves} slaves", _master, run, slaves) for slaves in SLAVES])


def _master(run: Run, slaves: int) -> Figures:
    run.back_memory((PACED + BURST) * RECORD * (slaves + 1) + STALLED_BYTES)
    figures: dict[str, float] = {}

    with empty_folder(run.directory / "group") as root, ExitStack() as opened:
        master = opened.enter_context(rmqstore_side("master", "autoswitch", root / "master"))
        master.ask("feed", 1000, BODY)
        master.ask("paced", 100, RATE, BODY)

        before = master.private_KiB()
        group = [
            opened.enter_context(
                rmqstore_side("slave", "autoswitch", root / f"slave-{number}", master.address)
            )
            for number in range(slaves)
        ]

        master.ask("sync", slaves + 1)
        figures["idle_KiB"] = master.private_KiB() - before

        for way, words in {
            "paced": ("paced", PACED, RATE, BODY),
            "burst": ("burst", BURST, BODY),
        }.items():
            with Peak(master.private_KiB, poll_s=_POLL_S) as peak:
                answer = master.ask(*words)
            for name in ("p50_us", "p99_us", "msgs_per_s"):
                figures[f"{way}_{name}"] = answer[name]
            figures[f"{way}_KiB"] = peak.value - before
            master.ask("sync", slaves + 1)

        if slaves:
            figures |= _stalled(master, group)
    return figures


def _stalled(master: Side, group: list[Side]) -> Figures:
    """What slaves that stop reading make their master keep."""
    private, kernel = master.private_KiB(), _socket_KiB()
    for slave in group:
        slave.pause()
    master.ask("feed", STALLED_BYTES // RECORD, BODY)
    figures = {
        "stalled_KiB": master.private_KiB() - private,
        "stalled_sockets_KiB": _socket_KiB() - kernel,
    }
    for slave in group:
        slave.resume()
    master.ask("sync", len(group) + 1)
    return figures


def _socket_KiB() -> int:
    """The kernel's memory for all TCP sockets of this machine."""
    text = Path("/proc/net/sockstat").read_text(encoding="utf-8")
    found = re.search(r"^TCP:.* mem (\d+)", text, re.MULTILINE)
    assert found is not None
    return int(found[1]) * _PAGE_KiB
