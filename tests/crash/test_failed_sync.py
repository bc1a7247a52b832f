"""Puts whose sync fails: threads, handles and tasks get the error, and none an acknowledgement."""

from __future__ import annotations

import errno
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.stalled_disk import StalledDisk
from tests.support.waiting import WAIT_S, spin_until

PUTS = 4
PUT = """
import asyncio
import json
import sys
import threading
import rmqstore
from rmqstore import Durability, StoreError, aio
from tests.support.agreement import FILES
from tests.support.waiting import spin_until

directory, way, puts = sys.argv[1], sys.argv[2], int(sys.argv[3])
found = []


def note(act):
    try:
        found.append(["acknowledged", act().queue_offset])
    except StoreError as error:
        note_error(error)


def note_error(error):
    receipt = error.receipt
    found.append([type(error).__name__, error.stored, str(error.status), receipt.queue_offset])


def begin(store):
    safe = store.put_async("t", b"x", durability=Durability.DISK)
    safe.result()
    print("ready", flush=True)
    sys.stdin.readline()
    return safe


def threads(store):
    first = begin(store).receipt
    put = lambda n: note(lambda: store.put("t", b"x", durability=Durability.DISK, timeout=60))
    started = [threading.Thread(target=put, args=(n,)) for n in range(puts)]
    for thread in started:
        thread.start()
    end = first.end_offset + puts * first.size
    spin_until(lambda: store.end_offset >= end, "all are appended")
    print("appended", flush=True)
    for thread in started:
        thread.join()


def handles(store):
    safe = begin(store)
    made = [store.put_async("t", b"x", durability=Durability.DISK) for _ in range(puts)]
    print("appended", flush=True)
    for _ in range(2):
        try:
            store.wait([safe, *made], timeout=60)
        except StoreError:
            pass
    for handle in made:
        assert handle.done
        note(handle.result)
    assert safe.result().queue_offset == 0


async def tasks(store):
    begin(store.store)
    made = [store.put("t", b"x", durability=Durability.DISK) for _ in range(puts)]
    made = [asyncio.create_task(each) for each in made]
    await asyncio.sleep(0)
    handle = store.put_async("t", b"x", durability=Durability.DISK)
    print("appended", flush=True)
    every = await asyncio.gather(*made, store.wait([handle]), return_exceptions=True)
    for each in every:
        note_error(each) if isinstance(each, StoreError) else found.append(["acknowledged", each])


async def on_loop():
    store = aio.open(directory, **FILES)
    await store.__aenter__()
    await tasks(store)


if way == "tasks":
    asyncio.run(on_loop())
else:
    opened = rmqstore.open(directory, **FILES)
    globals()[way](opened)
print(json.dumps(found), flush=True)
"""


@pytest.fixture
def disk(tmp_path: Path) -> StalledDisk:
    return StalledDisk(tmp_path)


@pytest.mark.parametrize("way", ["threads", "handles", "tasks"])
def test_error_of_a_sync_reaches_every_put_that_waits_for_it(
    way: str, tmp_path: Path, disk: StalledDisk
) -> None:
    command = [sys.executable, "-c", PUT, str(tmp_path / "store"), way, str(PUTS)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=disk.environment, text=True
    ) as child:
        try:
            assert child.stdin is not None
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
            disk.stall()
            child.stdin.write("\n")
            child.stdin.flush()
            assert child.stdout.readline() == "appended\n"
            spin_until(lambda: disk.waiting, "a sync is held")
            disk.fail(errno.EIO)
            disk.go_on()
            output, _ = child.communicate(timeout=WAIT_S)
        finally:
            disk.go_on()
            child.kill()
    found: list[list[Any]] = json.loads(output)
    assert {tuple(each[:3]) for each in found} == {("NotWritable", None, "FLUSH_DISK_TIMEOUT")}
    count = PUTS + 1 if way == "tasks" else PUTS
    assert sorted(each[3] for each in found) == list(range(1, 1 + count))
