"""Peers that are old, silent, slow or talk nonsense, against the machines of both sides."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rmqstore.replication.protocol.events import FrameReceived, HaOptions, SendLog, Tick
from rmqstore.replication.protocol.frames import (
    Ack,
    ClassicData,
    Frame,
    HandshakeReply,
    Report,
    Transfer,
)
from tests.scenarios.ha_model import entries
from tests.scenarios.pairs import (
    HELLO,
    LIKE_JAVA,
    classic_slave,
    limited,
    log,
    switch_master,
    switch_slave,
)


def test_old_master_is_not_followed() -> None:
    slave = log("abc").begin(3).put("d")
    play = switch_slave(slave).hears("slave", HandshakeReply(900, 2, entries((1, 0), (2, 300))))
    play.expect(
        """
        slave > handshake of 2
        master > reply: end 900, 1@0 2@300
        slave: close (the master is of epoch 2, and this replica knows epoch 3: that master was
            replaced, or has not begun its epoch yet; nothing is acknowledged to it), again
            after 5000
        """
    )
    assert slave.answer() == "0-400 abcd 1@0 3@300"


def test_master_epochs_behind_its_own_end_are_not_believed() -> None:
    slave = log("abc").begin(2).put("d")
    reply = HandshakeReply(300, 2, entries((1, 0), (2, 310)))
    switch_slave(slave, LIKE_JAVA).hears("slave", reply).expect(
        """
        slave > handshake of 2
        master > reply: end 300, 1@0 2@310
        slave: cut 300
        slave: save 1@0
        slave > ack 300
        """
    )
    assert slave.answer() == "0-300 abc 1@0"


@pytest.mark.parametrize(
    ("frames", "why"),
    [
        ([HELLO, HELLO, Ack(0), HELLO], "second handshake"),
        ([replace(HELLO, broker_id=1)], "calls itself broker 1"),
        ([replace(HELLO, broker_id=-1)], "calls itself broker -1"),
        ([HELLO, Ack(-1)], "ends at -1"),
        ([HELLO, Ack(200), Ack(300), Ack(200)], "acknowledged 300 and then 200"),
        ([Report(0)], "a Report came"),
        ([HELLO, Transfer(0, 1, 0, 0)], "a Transfer came"),
    ],
)
def test_master_closes_on_frames_that_no_slave_sends(frames: list[Frame], why: str) -> None:
    play = switch_master(log("abc")).hears("master", *frames)
    assert play.lines[-1].startswith("master: close (")
    assert why in play.lines[-1]


REPLY = HandshakeReply(300, 1, entries((1, 0)))


@pytest.mark.parametrize(
    ("frames", "why"),
    [
        ([Transfer(0, 1, 0, 0)], "a Transfer came in state HANDSHAKE"),
        ([REPLY, REPLY], "a HandshakeReply came in state TRANSFER"),
        ([HandshakeReply(300, 2, entries((1, 0)))], "its last epoch is 2"),
        ([HandshakeReply(-5, -1, ())], "ends at -5"),
        ([HandshakeReply(300, 1, entries((2, 0), (1, 50)))], "epoch 1 at 50 follows epoch 2"),
        ([HandshakeReply(300, 1, entries((-7, 0), (1, 50)))], "out of bounds"),
        ([HandshakeReply(300, 2, entries((2, 0)))], "no epoch in common"),
        ([REPLY, Transfer(400, 1, 0, 0, b"x")], "sent byte 400 where 200 was to come"),
        ([REPLY, Transfer(-2, 1, 0, 0, b"x")], "sent byte -2"),
        ([REPLY, Transfer(200, 2, 900, 0, b"x")], "which contradicts 1 from 0"),
        ([REPLY, Transfer(200, 0, 0, 0, b"x")], "which contradicts 1 from 0"),
        ([REPLY, ClassicData(200)], "a ClassicData came"),
    ],
)
def test_slave_closes_on_frames_that_no_master_sends(frames: list[Frame], why: str) -> None:
    slave = log("abc")
    play = switch_slave(slave).hears("slave", *frames)
    assert play.lines[-1].startswith("slave: close (")
    assert why in play.lines[-1]
    assert slave.answer() == "0-300 abc 1@0"
    assert slave.confirm_offset == 300


def test_peer_that_stops_reading_is_closed_and_holds_one_window() -> None:
    master = log("abcdefgh")
    options = HaOptions(batch_bytes=100, window_bytes=300)
    play = switch_master(master, options)
    assert play.master is not None
    machine = play.master

    play.hears("master", HELLO)

    sent = [each for each in machine.on(FrameReceived(Ack(0)), 0) if isinstance(each, SendLog)]
    assert sum(each.size for each in sent) == 300

    assert machine.on(FrameReceived(Ack(100)), 15000)[1:] == []
    assert machine.on(Tick(), 20000) == []

    play.now_ms = 20000
    play.lines.clear()
    play.wait(1).expect(
        """
        -- 1 ms
        master: close (the slave has read nothing for more than 20000 ms), again after 0
        """
    )


def test_peer_that_never_completes_a_frame_is_closed() -> None:
    switch_master(log("abc")).hears("master", HELLO).wait(20000).wait(1).expect(
        """
        slave > handshake of 2
        master: joined 2
        master > reply: end 300, 1@0
        -- 20000 ms
        -- 1 ms
        master: close (the slave sent no whole frame for more than 20000 ms), again after 0
        """
    )
    classic_slave(log("abc")).wait(20000).wait(1).expect(
        """
        slave > report 200
        -- 20000 ms
        slave > report 200
        -- 1 ms
        slave: close (the master sent no whole frame for more than 20000 ms), again after 5000
        """
    )


def test_files_deleted_before_a_slave_had_them_close_its_connection() -> None:
    master = log("abcdefghijklmnop")
    play = switch_master(master, replace(limited(400), batch_bytes=100))
    play.hears("master", HELLO, Ack(0))
    master.trim(1000)
    play.lines.clear()
    play.wait(1000).expect(
        """
        -- 1000 ms
        master: close (byte 292 comes next, the log is from 1000 to 1600: files were deleted
            before the slave had them), again after 0
        """
    )
