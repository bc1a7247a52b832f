"""The real Java store, through the peer program of tests/interop/peer on the command line.

It is built with Maven on first use (tests/support/java.py), into `build/java` or PEER_BUILD_DIR.
ROCKETMQ_VERSION names the release. It runs with Java's own defaults and the heap that the JVM
chooses; PEER_JAVA_OPTS changes that. `benchmarks.java_broker` is the same in the JVM of a broker.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
from collections.abc import Sequence
from typing import Any

from benchmarks.peers import Figures, Job, WrongAnswer
from benchmarks.workloads import PACED_WARM_UP, QUEUES, ROLL_FILE_SIZE, Kind, Workload
from tests.support import java
from tests.support.builds import BuildError

NAME = "java"
RUN_TIMEOUT_S = 300
# Until it has compiled what a put runs through, the JVM is several times slower.
WARM_UP_LEAST = 100_000


class JavaFailed(Exception):
    """The Java program could not be built, failed, or took too long."""


def release() -> str:
    """Return the release of RocketMQ that is run."""
    return os.environ.get("ROCKETMQ_VERSION", "5.3.3")


def missing() -> str | None:
    """Return what is needed and not there, or None."""
    return java.missing()


def supports(workload: Workload) -> bool:
    """Return whether the Java program has that workload."""
    return workload.kind not in (Kind.HANDLES, Kind.ARROW, Kind.MEMORY, Kind.IMPORT)


def build() -> None:
    """Build the program unless that was done before, by this process or another."""
    try:
        java.build(release())
    except BuildError as error:
        raise JavaFailed(str(error)) from error


def run(job: Job, flags: Sequence[str] = ()) -> Figures:
    """Do the job in a JVM with *flags*."""
    if job.workload.kind is Kind.GET:
        return _get(job, flags)
    if job.workload.kind is Kind.RECOVER:
        return _recover(job, flags)
    return _put(job, flags)


def _put(job: Job, flags: Sequence[str]) -> Figures:
    workload = job.workload
    flush = "sync" if workload.kind is Kind.DURABLE else "async"
    arguments: list[object] = [
        *("put" if workload.batch == 1 else "batchput", "--dir", job.directory / "store"),
        *("--messages", job.count, "--body", workload.body, "--threads", workload.threads),
        *("--queues", QUEUES, "--flush", flush),
    ]

    if workload.kind is Kind.DURABLE:
        arguments += ["--warmup", max(1000, job.count // 5)]
    elif workload.kind is Kind.PACED:
        warm_up = max(WARM_UP_LEAST, job.count // PACED_WARM_UP)
        arguments += ["--warmup", warm_up, "--rate", workload.rate]
    else:
        arguments += ["--warmup", max(WARM_UP_LEAST, job.count // 5)]

    if workload.batch > 1:
        arguments += ["--batch", workload.batch]
    if workload.kind is Kind.ROLL_OVER:
        arguments += ["--set", f"mappedFileSizeCommitLog={ROLL_FILE_SIZE}"]

    (line,) = _bench(*arguments, flags=flags)
    names = (
        "messages", "msgs_per_s", "bytes_per_message", "calls",
        "p50_us", "p99_us", "p999_us", "p9999_us", "max_us",
    )  # fmt: skip

    figures = {name: line[name] for name in names}
    if workload.kind not in (Kind.DURABLE, Kind.PACED):
        for name in ("msgs_per_s_dispatched", "msgs_per_s_flushed"):
            figures[name] = line[name]

    if line["messages"] < job.count - workload.threads * workload.batch:
        raise WrongAnswer(f"{line['messages']} of {job.count} messages were put")
    figures["MB_per_s"] = round(figures["msgs_per_s"] * workload.body / 1e6, 1)
    return figures


def _get(job: Job, flags: Sequence[str]) -> Figures:
    assert job.store is not None
    (line,) = _bench("get", "--dir", job.store, "--decode", "--rounds", 3, flags=flags)
    return {
        "messages": line["messages"],
        "msgs_per_s": line["msgs_per_s"],
        "MB_per_s": round(line["msgs_per_s"] * job.workload.body / 1e6, 1),
    }


def _recover(job: Job, flags: Sequence[str]) -> Figures:
    assert job.store is not None
    answers = _bench("recover", "--dir", job.store, "--rounds", 3, flags=flags)
    lines = {line["kind"]: line for line in answers}
    took = {kind: round(statistics.median(line["load_ms"]), 2) for kind, line in lines.items()}
    log_bytes = lines["crash-no-checkpoint"]["log_bytes"]
    return {
        "ms": took["crash-no-checkpoint"],
        "crash-with-checkpoint_ms": took["crash"],
        "clean_ms": took["clean"],
        "log_bytes": log_bytes,
        "MB_per_s": round(log_bytes / took["crash-no-checkpoint"] / 1e3, 1),
    }


def _bench(*arguments: object, flags: Sequence[str]) -> list[dict[str, Any]]:
    answer = _call(["bench", *(str(each) for each in arguments)], flags, timeout=RUN_TIMEOUT_S)
    if answer.returncode:
        raise JavaFailed(f"exit status {answer.returncode}: {answer.stderr[-1000:]}")
    return [json.loads(line) for line in answer.stdout.splitlines() if line.startswith("{")]


def _call(
    arguments: list[str], flags: Sequence[str], *, timeout: float
) -> subprocess.CompletedProcess[str]:
    """Runs the program; one that takes too long is killed with its children."""
    process = subprocess.Popen(
        java.command(release(), "peer.store.Main", *arguments, flags=flags),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise JavaFailed(f"{arguments[:2]} took more than {timeout:.0f} s") from None
    return subprocess.CompletedProcess(arguments, process.returncode, out, err)
