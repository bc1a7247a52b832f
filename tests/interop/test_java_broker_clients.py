"""Clients whose brokers are usually ours, against a broker and a nameserver of Java."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop import test_broker_java_clients, test_go_client
from tests.interop.clients import java_program, play_over_java
from tests.support import go, java
from tests.support.releases import BEFORE, NEW

pytestmark = pytest.mark.java


def test_go_clients_see_the_same_at_a_broker_of_java(tmp_path: Path) -> None:
    go.need()
    java.need(NEW)
    assert play_over_java(go.command, NEW, tmp_path) == test_go_client.SEEN


def test_java_clients_of_4_9_see_the_same_at_a_broker_of_java(tmp_path: Path) -> None:
    java.need(NEW)
    program = java_program(BEFORE)
    assert play_over_java(program, NEW, tmp_path) == test_broker_java_clients.SEEN
