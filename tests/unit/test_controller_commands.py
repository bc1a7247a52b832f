"""Commands of the controller and their bytes."""

from __future__ import annotations

import json

import pytest

from rmqstore.controller.commands import (
    AlterSet,
    ElectMaster,
    RemoveBrokers,
    Terms,
    decode_command,
    encode_command,
)
from rmqstore.controller.state import ControllerState
from rmqstore.errors import CorruptionError


def test_the_bytes_of_a_command_are_as_documented() -> None:
    command = AlterSet("g", 1, 2, 3, frozenset((2, 1)), False, Terms(2, 1, False, 500))
    assert encode_command(command) == (
        b'{"accepts_same":false,"group":"g","master_epoch":2,"master_id":1,"members":[1,2],'
        b'"set_epoch":3,"terms":{"all_ack":false,"in_sync":2,"lease_ms":500,"min_in_sync":1},'
        b'"type":"alter-set"}'
    )


@pytest.mark.parametrize(
    "command",
    [
        ElectMaster("g", 1, 2, None, 2, False),
        RemoveBrokers("ü", None),
        RemoveBrokers("g", frozenset()),
    ],
)
def test_absent_values_are_kept(command: ElectMaster | RemoveBrokers) -> None:
    assert decode_command(encode_command(command)) == command


def test_a_field_with_its_default_value_is_left_out() -> None:
    command = ElectMaster("g", 1, 2, 3, 2, False)
    written = json.loads(encode_command(command))
    assert "master_life" not in written
    assert decode_command(json.dumps({**written, "master_life": None}).encode()) == command


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        b"[]",
        b"7",
        b'{"type":"other"}',
        b'{"type":"settle-departed"}',
        b'{"group":"g","master_epoch":"1","set_epoch":1,"type":"settle-departed"}',
        b'{"group":"g","master_epoch":true,"set_epoch":1,"type":"settle-departed"}',
        b'{"group":1,"master_epoch":1,"set_epoch":1,"type":"settle-departed"}',
        b'{"broker_ids":[1,"2"],"group":"g","type":"remove-brokers"}',
        b'{"broker_ids":3,"group":"g","type":"remove-brokers"}',
        b"[" * 100_000,
    ],
)
def test_bytes_that_are_no_command_are_refused(data: bytes) -> None:
    with pytest.raises(CorruptionError, match="restore the directory from a copy"):
        decode_command(data)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b'{"version":2,"groups":[]}',
        b'{"version":1}',
        b'{"version":1,"groups":[{}]}',
        b'{"version":1,"groups":[{"brokers":[],"cluster":"c","departed":[],"founded_epoch":0,'
        b'"master_epoch":1,"master_id":1,"name":"g","next_broker_id":2,"set_epoch":1,'
        b'"sync_state_set":[1],"terms":null}]}',
    ],
)
def test_a_snapshot_that_cannot_be_is_refused_and_changes_nothing(data: bytes) -> None:
    state = ControllerState()
    before = state.snapshot()
    with pytest.raises(CorruptionError, match="snapshot of the controller"):
        state.restore(data)
    assert state.snapshot() == before
