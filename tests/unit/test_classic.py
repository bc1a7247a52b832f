"""Classic HA, both sides, against what real replicas said and on its own timers.

docs/protocols.md; RocketMQ's DefaultHAConnection and DefaultHAClient.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from rmqstore.errors import ArgumentError
from rmqstore.replication.protocol.classic import ClassicMaster, ClassicSlave
from rmqstore.replication.protocol.events import (
    Closed,
    FrameReceived,
    HaOptions,
    HaState,
    LogGrew,
    Opened,
    Send,
    SendLog,
    Tick,
    Writable,
)
from rmqstore.replication.protocol.frames import ClassicData, Report
from tests.golden.wire import NAMES
from tests.scenarios.ha_model import ModelLog
from tests.scenarios.pairs import LIKE_JAVA, OPTIONS
from tests.scenarios.replay import conversations, essence, once, play_master, play_slave

CASES = [name for name in NAMES if name.startswith("default-")]
BATCH_BYTES = {"default-small-batches": 512, "default-cut": 1000}


@pytest.mark.parametrize("name", CASES)
def test_slave_says_what_a_java_slave_said(name: str) -> None:
    for slave, master in conversations(name):
        sent, _ = play_slave(slave, master)
        assert once(sent)[: len(once(slave))] == once(slave)


@pytest.mark.parametrize("name", CASES)
def test_master_says_what_a_java_master_said(name: str) -> None:
    for slave, master in conversations(name):
        sent, acked = play_master(master, slave, batch_bytes=BATCH_BYTES.get(name, 32768))
        said = essence(master)
        assert essence(sent)[: len(said)] == said
        if name not in ("default-slave-ahead", "default-forked"):
            assert acked == slave[-1].offset  # type: ignore[union-attr]


@pytest.mark.parametrize(("letters", "first"), [("", 0), ("abcdefghij", 0), ("abcdefghijk", 1000)])
def test_empty_slave_begins_at_the_last_file(letters: str, first: int) -> None:
    log = ModelLog().put(letters)
    master = ClassicMaster(log, broker_id=2, options=OPTIONS)
    master.on(Opened(), 0)
    master.on(FrameReceived(Report(0)), 0)
    log.put("z")
    sent = master.on(Writable(), 0) + master.on(LogGrew(), 0)
    assert master.next_offset == log.end_offset
    assert {each.offset for each in sent if isinstance(each, SendLog)} <= {
        first,
        log.end_offset - 100,
    }


def test_body_never_spans_two_files() -> None:
    log = ModelLog(file_size=250).put("abcdef")
    master = ClassicMaster(log, broker_id=2, options=OPTIONS)
    master.on(Opened(), 0)
    sent = master.on(FrameReceived(Report(100)), 0)
    assert [(each.offset, each.size) for each in sent if isinstance(each, SendLog)] == [
        (100, 150),
        (250, 250),
        (500, 100),
    ]


def test_nothing_is_sent_before_the_first_report() -> None:
    master = ClassicMaster(ModelLog().put("abc"), broker_id=2, options=OPTIONS)
    events = [Opened(), LogGrew(), Writable(), Tick()]
    assert [master.on(event, 6000) for event in events] == [[], [], [], []]


def test_both_sides_write_after_more_than_the_heartbeat_interval() -> None:
    log = ModelLog().put("abc")
    master = ClassicMaster(log, broker_id=2, options=LIKE_JAVA)
    slave = ClassicSlave(log, options=LIKE_JAVA)
    master.on(Opened(), 0)
    master.on(FrameReceived(Report(300)), 0)
    slave.on(Opened(), 0)
    assert master.next_tick_ms() == slave.next_tick_ms() == 5001
    assert master.on(Tick(), 5000) == slave.on(Tick(), 5000) == []
    assert master.on(Tick(), 5001) == [Send(ClassicData(300))]
    assert slave.on(Tick(), 5001) == [Send(Report(300))]


def test_first_report_does_not_wait_for_a_heartbeat_interval() -> None:
    slave = ClassicSlave(ModelLog().put("abc"), options=LIKE_JAVA)
    assert slave.on(Opened(), 0) == [Send(Report(300))]


def test_frames_that_cut_a_record_anywhere_make_the_same_log() -> None:
    whole = ModelLog().put("abc").data
    for cut in range(1, 300):
        log = ModelLog()
        slave = ClassicSlave(log, options=OPTIONS)
        slave.on(Opened(), 0)
        for offset, body in ((0, whole[:cut]), (cut, whole[cut:])):
            for effect in slave.on(FrameReceived(ClassicData(offset, body)), 0):
                log.carry_out(effect)
            assert slave.on(LogGrew(), 0) == [Send(Report(offset + len(body)))]
        assert log.data == whole


def test_several_frames_may_be_acknowledged_at_once() -> None:
    log = ModelLog()
    slave = ClassicSlave(log, options=OPTIONS)
    slave.on(Opened(), 0)
    for offset in (0, 10, 20):
        for effect in slave.on(FrameReceived(ClassicData(offset, b"x" * 10)), 0):
            log.carry_out(effect)
    assert slave.on(LogGrew(), 0) == [Send(Report(30))]


def test_machine_of_a_master_ends_with_its_connection() -> None:
    master = ClassicMaster(ModelLog().put("abc"), broker_id=2, options=OPTIONS)
    master.on(Opened(), 0)
    master.on(Closed(), 0)
    assert master.state is HaState.SHUTDOWN
    assert master.on(FrameReceived(Report(0)), 0) == []
    assert master.next_tick_ms() is None


@pytest.mark.parametrize("name", ["batch_bytes", "heartbeat_ms", "window_bytes"])
def test_options_out_of_bounds_are_refused_with_the_bounds(name: str) -> None:
    with pytest.raises(ArgumentError, match=f"{name} is 0; it must be from 1 to"):
        replace(HaOptions(), **{name: 0})
