"""A slave that acknowledges its disk, while the disk does not answer."""

from __future__ import annotations

import json
import select
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from rmqstore.replication import HaOptions, Master, Quorum
from tests.support.agreement import FILES
from tests.support.relay import Relay
from tests.support.stalled_disk import StalledDisk
from tests.support.waiting import WAIT_S, spin_until

QUICK = HaOptions(heartbeat_ms=200, reconnect_ms=20)
TWO = Quorum(in_sync=2, timeout_ms=20_000)
COMPARED_BYTES = QUICK.overlap_bytes
SERVE = """
import json
import sys
import rmqstore
from rmqstore.replication import HaOptions, Slave
from tests.support.agreement import FILES

directory, protocol, host, port = sys.argv[1:]
options = HaOptions(heartbeat_ms=200, reconnect_ms=20, ack_flushed=True)
with rmqstore.open(directory, **FILES) as store:
    slave = Slave(store, master=(host, int(port)), broker_id=2, protocol=protocol, options=options)
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        answer = getattr(slave, name)(*arguments)
        if name == "status":
            of_master = answer.master
            answer = {
                "role": answer.role,
                "end": answer.end_offset,
                "flushed": answer.flushed_offset,
                "state": of_master.state.name,
                "acked": of_master.acked_offset,
                "address": list(of_master.address),
            }
        print(json.dumps(answer), flush=True)
    slave.close()
"""


class Child:
    """A slave in a process of its own."""

    def __init__(
        self, disk: StalledDisk, directory: Path, protocol: str, master: tuple[str, int]
    ) -> None:
        host, port = master
        self._process = subprocess.Popen(
            [sys.executable, "-c", SERVE, str(directory), protocol, host, str(port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=disk.environment,
        )

    def ask(self, *command: Any) -> Any:
        """Return the answer, which must not wait for the disk."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(json.dumps(command).encode() + b"\n")
        stdin.flush()
        poller = select.poll()
        poller.register(stdout, select.POLLIN)
        assert poller.poll(WAIT_S * 1000), f"{command[0]} waits for the disk"
        return json.loads(stdout.readline())

    def end(self) -> int:
        """Close the store; return the exit code of the process."""
        self._process.communicate(timeout=WAIT_S)
        return self._process.returncode

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.communicate()


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[ExitStack]:
    """Yield what is closed before the folder of the test goes."""
    with ExitStack() as made:
        yield made


@pytest.mark.parametrize("protocol", ["autoswitch", "classic"])
def test_a_slave_that_waits_for_its_disk_tells_how_things_stand_and_changes_its_role(
    protocol: str, stack: ExitStack, tmp_path: Path
) -> None:
    disk = StalledDisk(tmp_path)
    store = stack.enter_context(rmqstore.open(tmp_path / "master", **FILES))
    store.put("orders", b"first")
    master = stack.enter_context(
        Master(
            store,
            listen="127.0.0.1:0",
            broker_id=1,
            protocol=protocol,  # type: ignore[arg-type]
            quorum=TWO,
            options=QUICK,
        )
    )
    relay = Relay(master.address)
    stack.callback(relay.close)
    child = Child(disk, tmp_path / "slave", protocol, relay.address)
    stack.callback(child.kill)
    stack.callback(disk.go_on)
    first = store.put("orders", b"second", copies=2).end_offset

    def acked() -> list[int]:
        return [each.ack_offset for each in master.replicas]

    disk.stall()
    for _ in range(3):
        end = store.put("orders", bytes(COMPARED_BYTES)).end_offset
    spin_until(lambda: child.ask("status")["end"] == end and disk.waiting, "a sync hangs")
    now = child.ask("status")
    assert (now["state"], now["acked"], now["flushed"], acked()) == (
        "TRANSFER",
        first,
        first,
        [first],
    )

    # Where to begin is a word that waits for the disk as well.
    relay.drop()
    spin_until(lambda: child.ask("status")["acked"] == -1, "the connection is another")
    spin_until(lambda: child.ask("status")["state"] == "TRANSFER", "it is past its handshake")
    assert child.ask("status")["flushed"] == first
    disk.go_on()
    master.wait_in_sync(2, timeout=WAIT_S)
    assert store.put("orders", b"fourth", copies=2).copies == 2

    disk.stall()
    end = store.put("orders", b"fifth").end_offset
    spin_until(lambda: child.ask("status")["end"] == end and disk.waiting, "a sync hangs")
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        address = list(nobody.getsockname())
        child.ask("become_slave", "{}:{}".format(*address))
        assert child.ask("status")["address"] == address
    child.ask("close")
    disk.go_on()
    assert child.end() == 0
