"""The classic Go client of RocketMQ against brokers of ours."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.interop.clients import RETRYING, play, play_in_group
from tests.support import go
from tests.support.our_group import OurGroup

LETTERS = 10
SEEN: Mapping[str, Any] = {
    "sync": True,
    "async": 10,
    "batch": True,
    "pushed": 20,
    "tagged": ["0", "11"],
    "selected": ["3", "4", "5"],
    "shared": True,
    "broadcast": True,
    "pulled": True,
    "polled": True,
    "delayed": True,
    "timed": True,
    "requested": "re: hello",
    "committed": ["0", "2", "4", "6"],
    "tries": [0, 1],
    "tried": 1,
    "dead": 1,
    "fewest tries": 3,
    "in order": [True, True, True],
}


def test_go_clients_send_and_consume(tmp_path: Path) -> None:
    go.need()
    assert play(go.command, tmp_path) == SEEN


def test_go_consumer_fails_and_gets_dead_letters_though_the_master_is_killed(
    tmp_path: Path,
) -> None:
    go.need()
    group = OurGroup(tmp_path, RETRYING)
    try:
        group.wait_whole()
        found = play_in_group(go.command, group, LETTERS, after="tried")
        assert found["tried"] == LETTERS
        assert found["dead"] == 2 * LETTERS, "those sent before the kill, and after it"
        assert found["fewest tries"] >= 3
        assert len(group.masters) > 1, "another broker leads"
    finally:
        group.close()
