"""A file system that turns read-only, or goes away, under a running store."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from tests.crash.disk import LoopDisk, unmount
from tests.support.agreement import FILES, check_agreement

DISK_BYTES = 64 << 20

# A process of its own: a store through a mapping of a failing disk could kill it.
PUT_UNTIL_REFUSED = """
import json, sys
import rmqstore
from rmqstore import Durability, NotWritable
from tests.support.agreement import FILES

directory, size, durability = sys.argv[1], int(sys.argv[2]), Durability[sys.argv[3]]
store = rmqstore.open(directory, **FILES)
kept = []
for number in range(300):
    body = (b"%06d" % number).ljust(size)
    store.put("orders", body, queue=number % 3, keys=[f"k{number}"])
    kept.append(body)
store.wait_dispatched()
store.flush()
print("ready", flush=True)
sys.stdin.readline()
error = None
for number in range(300, 100_000):
    body = (b"%06d" % number).ljust(size)
    try:
        store.put("orders", body, queue=number % 3, keys=[f"k{number}"], durability=durability)
    except NotWritable as caught:
        error = caught
        break
    if durability is Durability.DISK:
        kept.append(body)
assert error, "nothing was refused"
for number in range(0, len(kept), 7):
    assert store.get("orders", queue=number % 3, offset=number // 3).body == kept[number]
    assert [each.body for each in store.find("orders", f"k{number}")] == [kept[number]]
for _ in range(3):
    try:
        store.put("orders", b"again", durability=durability)
    except NotWritable:
        pass
    else:
        raise AssertionError("a put succeeded after the failure")
closing = ""
try:
    store.close()
except rmqstore.StoreError as caught:
    closing = type(caught).__name__
print(json.dumps({"kept": len(kept), "error": str(error), "closing": closing}))
"""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[LoopDisk]:
    made = LoopDisk(tmp_path, DISK_BYTES)
    yield made
    unmount(made.path)


@pytest.mark.parametrize("size", [6, 9000])
@pytest.mark.parametrize("durability", ["MEMORY", "DISK"])
@pytest.mark.parametrize("fault", [LoopDisk.turn_read_only, LoopDisk.vanish])
def test_failing_file_system_refuses_puts_lets_reads_go_on_and_keeps_what_was_durable(
    fault: Any, durability: str, size: int, disk: LoopDisk
) -> None:
    directory = disk.path / "store"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}

    with subprocess.Popen(
        [sys.executable, "-c", PUT_UNTIL_REFUSED, str(directory), str(size), durability],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        assert process.stdout is not None
        ready = process.stdout.readline()
        if ready == "ready\n":
            fault(disk)
        printed, complaint = process.communicate("go on\n")

    assert process.returncode == 0, f"{process.returncode}\n{complaint}"
    answer = json.loads(printed)
    reason = "Read-only file system" if fault is LoopDisk.turn_read_only else "Input/output error"
    assert reason in answer["error"]
    assert answer["closing"]

    disk.repair()
    with rmqstore.open(directory, **FILES) as store:
        bodies = [each.body for each in check_agreement(store)]

    assert len(bodies) >= answer["kept"] >= 300
    assert bodies == [(b"%06d" % number).ljust(size) for number in range(len(bodies))]
