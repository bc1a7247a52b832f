"""Runs of the simulator from the command line: `python -m rmqstore.sim --help`."""

from __future__ import annotations

import argparse
import secrets
import sys
import time
from collections.abc import Iterator
from itertools import count

from rmqstore.sim import Hazards, Outcome, run
from rmqstore.sim.sweep import Workers, cores

_FAILURES_MAX = 10


def main(arguments: list[str] | None = None) -> int:
    """Run the seeds that *arguments* name; return 1 after a violation."""
    parser = argparse.ArgumentParser(
        prog="python -m rmqstore.sim", description="Replica groups in virtual time, by seed."
    )
    parser.add_argument("seed", type=int, nargs="?", help="run this seed and print its trace")
    parser.add_argument("--seconds", type=float, help="run new seeds for this time")
    parser.add_argument("--count", type=int, help="number of seeds to run")
    parser.add_argument("--first", type=int, help="the first seed. Default: random")
    parser.add_argument(
        "--cluster", action="store_true", help="with brokers and clients, found by nameservers"
    )
    parser.add_argument(
        "--hazards",
        metavar="NAME,NAME",
        help="in each seed exactly these of: " + ", ".join(Hazards.names()),
    )
    parser.add_argument("--replicas", type=int, default=3)
    parser.add_argument("--steps", type=int, default=100, help="bursts of puts in each run")
    parser.add_argument(
        "--failures",
        type=int,
        default=_FAILURES_MAX,
        help=f"failed seeds that end the sweep. Default: {_FAILURES_MAX}",
    )
    parser.add_argument(
        "--jobs", type=int, default=cores(), help="processes that run seeds; all cores by default"
    )

    answer = parser.parse_args(arguments)
    hazards = None
    if answer.hazards is not None:
        names = [each for each in answer.hazards.split(",") if each]
        if not names or not set(names) <= set(Hazards.names()):
            parser.error(f"--hazards: give names of {', '.join(Hazards.names())}")
        hazards = Hazards.named(names)

    if answer.seed is not None:
        outcome = run(
            answer.seed,
            replicas=answer.replicas,
            steps=answer.steps,
            is_traced=True,
            cluster=answer.cluster,
            hazards=hazards,
        )
        print("\n".join(outcome.trace))
        print(_summary(outcome))
        return 0 if outcome.is_sound else 1

    if answer.seconds is None and answer.count is None:
        parser.error("give a seed, --seconds or --count")
    if answer.jobs < 1:
        parser.error("--jobs: give 1 or more")

    first = secrets.randbelow(2**40) if answer.first is None else answer.first
    jobs = answer.jobs if answer.count is None else max(min(answer.jobs, answer.count), 1)
    with Workers(jobs) as workers:
        return _sweep(
            workers,
            first,
            answer.count,
            seconds=answer.seconds,
            replicas=answer.replicas,
            steps=answer.steps,
            cluster=answer.cluster,
            hazards=answer.hazards,
            failures_max=answer.failures,
        )


def _sweep(
    workers: Workers,
    first: int,
    number: int | None,
    *,
    seconds: float | None,
    replicas: int,
    steps: int,
    cluster: bool,
    hazards: str | None,
    failures_max: int,
) -> int:
    started_s = time.monotonic()
    failed: list[int] = []
    runs = virtual_ms = confirmed = 0
    seeds = _seeds(first, number, until_s=None if seconds is None else started_s + seconds)

    named = None if hazards is None else Hazards.named(hazards.split(","))

    for outcome in workers.run(
        seeds, replicas=replicas, steps=steps, cluster=cluster, hazards=named
    ):
        runs, virtual_ms = runs + 1, virtual_ms + outcome.virtual_ms
        confirmed += outcome.confirmed
        if not outcome.is_sound:
            seed = outcome.seed
            failed.append(seed)
            print(f"{seed}: {outcome.violation}", flush=True)
            kind = "--cluster " if cluster else ""
            kind += f"--hazards {hazards} " if hazards is not None else ""
            sizes = f"--replicas {replicas} --steps {steps}"
            print(f"    python -m rmqstore.sim {seed} {kind}{sizes}")
            if len(failed) >= failures_max:
                break

    print(
        f"{runs} seeds from {first} on, {virtual_ms / 3_600_000:.1f} virtual hours, {confirmed} "
        f"messages confirmed, {time.monotonic() - started_s:.0f} s: "
        + (f"{len(failed)} failed: {' '.join(map(str, failed))}" if failed else "all sound")
    )

    return 1 if failed else 0


def _seeds(first: int, number: int | None, *, until_s: float | None) -> Iterator[int]:
    for seed in count(first) if number is None else range(first, first + number):
        if until_s is not None and time.monotonic() >= until_s:
            return
        yield seed


def _summary(outcome: Outcome) -> str:
    return (
        f"seed {outcome.seed}: {outcome.virtual_ms / 1000:.1f} virtual seconds, {outcome.puts} "
        f"puts, {outcome.acknowledged} acknowledged, {outcome.confirmed} confirmed, "
        f"{outcome.epochs} epochs: " + (outcome.violation or "sound")
    )


if __name__ == "__main__":
    sys.exit(main())
