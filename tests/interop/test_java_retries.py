"""A consumer of RocketMQ whose listener fails, through SIGKILL of the master of a group of ours."""

from __future__ import annotations

import subprocess
import threading
from pathlib import Path

import pytest

from tests.support import java
from tests.support.our_group import OurGroup
from tests.support.releases import NEW

PROGRAM = "peer.clients.Main"
MESSAGES = 20
LIMIT_S = 300.0
SETTINGS = {
    "messageDelayLevel": "1s 1s 1s",
    "inSyncReplicas": 2,
    "allAckInSyncStateSet": "true",
}
"""Nothing that is acknowledged is lost with the master."""

pytestmark = pytest.mark.java


def test_message_comes_again_until_it_is_a_dead_letter_though_the_master_is_killed(
    tmp_path: Path,
) -> None:
    java.need(NEW)
    group = OurGroup(tmp_path, SETTINGS)
    try:
        group.wait_whole()
        place = f"{group.server_host}:{group.nameserver_port}"
        with java.scratch(java.quick_flags(NEW)) as flags:
            command = java.command(NEW, PROGRAM, place, str(MESSAGES), flags=flags)
            found = seen(command, group)
        assert found["tried"] == found["dead"] == MESSAGES
        assert found["fewest tries"] >= 3
        assert len(group.masters) > 1, "another broker leads"
    finally:
        group.close()


def seen(command: list[str], group: OurGroup) -> dict[str, int]:
    """Run the consumer, and kill the master once it has failed at all messages; return what it
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
                if name == "tried":
                    group.master().kill()
            assert process.wait() == 0
        finally:
            limit.cancel()
            process.kill()
    # The controllers' answers name the masters.
    group.state()
    return found
