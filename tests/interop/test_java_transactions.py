"""A transactional producer of RocketMQ, through SIGKILL of the master of a group of ours."""

from __future__ import annotations

import subprocess
import threading
from pathlib import Path

import pytest

from tests.support import java
from tests.support.our_group import OurGroup
from tests.support.releases import NEW

PROGRAM = "peer.clients.Transactions"
TRANSACTIONS = 80
LIMIT_S = 400.0
SETTINGS = {
    "inSyncReplicas": 2,
    "allAckInSyncStateSet": "true",
    # Questions come sooner than notes: RocketMQ would ask about committed messages.
    "transactionTimeOut": 1000,
    "transactionCheckInterval": 500,
    "transactionOpBatchInterval": 3000,
}
"""Nothing that is acknowledged is lost with the master."""

pytestmark = pytest.mark.java


def test_each_transaction_ends_once_as_its_producer_says_though_the_master_is_killed(
    tmp_path: Path,
) -> None:
    java.need(NEW)
    group = OurGroup(tmp_path, SETTINGS)
    try:
        group.wait_whole()
        place = f"{group.server_host}:{group.nameserver_port}"
        with java.scratch(java.quick_flags(NEW)) as flags:
            command = java.command(NEW, PROGRAM, place, str(TRANSACTIONS), flags=flags)
            found = seen(command, group)
        assert found == {
            "sent": TRANSACTIONS // 2,
            "committed": TRANSACTIONS // 2,
            "rolled back": 0,
            "twice": 0,
        }
        assert len(group.masters) > 1, "another broker leads"
    finally:
        group.close()


def seen(command: list[str], group: OurGroup) -> dict[str, int]:
    """Run the producer, and kill the master once half of the transactions are sent; return what it
    saw."""
    found: dict[str, int] = {}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        limit = threading.Timer(LIMIT_S, process.kill)
        limit.start()
        try:
            assert process.stdout is not None
            for line in process.stdout:
                name, _, value = line.strip().removeprefix("@").partition("=")
                if line.startswith("@"):
                    found[name] = int(value)
                if name == "sent":
                    group.master().kill()
            assert process.wait() == 0
        finally:
            limit.cancel()
            process.kill()
    # The controllers' answers name the masters.
    group.state()
    return found
