"""Hazards of RocketMQ's replication in acknowledgements, flow control, disks and damaged bytes.

docs/defects.md, "Replication", numbers H10 and on. A Java peer is played by the frames it sends.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from rmqstore.replication.protocol.events import Append, TruncateTo
from rmqstore.replication.protocol.frames import Ack, HandshakeReply, Report, Transfer
from tests.scenarios.ha_model import ModelLog, entries
from tests.scenarios.pairs import (
    HELLO,
    OPTIONS,
    classic_master,
    limited,
    log,
    switch_master,
    switch_pair,
    switch_slave,
)


def test_h10_master_without_allowance_waits_and_floods_nothing() -> None:
    master = log("abcdefgh")
    play = classic_master(master, replace(limited(250), batch_bytes=100))

    play.hears("master", Report(0)).wait(500).wait(499).expect(
        """
        slave > report 0
        master: acked 2 0
        master > data 0+100
        master > data 100+100
        master > data 200+26
        -- 500 ms
        -- 499 ms
        """
    )

    assert play.master is not None
    assert play.master.next_tick_ms() == 1000

    play.wait(1).expect(
        """
        -- 1 ms
        master > data 226+100
        master > data 326+100
        master > data 426+26
        """
    )


@pytest.mark.parametrize("offset", [601, 2**62, int.from_bytes(b"GET / HT")])
def test_h15_issue_3015_issue_1155_report_above_the_end_counts_for_nothing(offset: int) -> None:
    classic = classic_master(log("abcdef")).hears("master", Report(offset))
    switch = switch_master(log("abcdef")).hears("master", HELLO, Ack(offset))
    for play in (classic, switch):
        assert [line for line in play.lines if "acked" in line or "data" in line] == []
        assert "it is the slave of another log, or ahead" in play.lines[-1]


def test_h15_acknowledgement_above_what_was_sent_counts_for_nothing() -> None:
    master = log("abcdef")
    options = replace(OPTIONS, window_bytes=1, batch_bytes=100, bytes_per_second=300)
    play = switch_master(master, options).hears("master", HELLO, Ack(100), Ack(500))

    play.expect(
        """
        slave > handshake of 2
        master: joined 2
        master > reply: end 600, 1@0
        slave > ack 100
        master > data 100+0 epoch 1@0 confirm 600
        master > data 100+100 epoch 1@0 confirm 600
        master > data 200+100 epoch 1@0 confirm 600
        slave > ack 500
        master: close (the slave acknowledged 500; only bytes up to 300 were sent), again after
            0
        """
    )


def test_h16_append_that_fails_is_not_acknowledged() -> None:
    master, slave = log("abc"), ModelLog()
    slave.fails.add(Append)
    switch_pair(master, slave).connect().expect(
        """
        slave > handshake of 2
        master: joined 2
        master > reply: end 300, 1@0
        slave > ack 0
        master > data 0+0 epoch 1@0 confirm 300
        master > data 0+300 epoch 1@0 confirm 300
        slave: save 1@0
        slave: append 0+300
        slave: close (No space left on device), again after 5000
        """
    )


def test_h16_cut_that_fails_is_tried_again_and_nothing_is_acknowledged() -> None:
    master, slave = log("abc").begin(2).put("X"), log("abcdef")
    slave.fails.add(TruncateTo)

    play = switch_pair(master, slave).connect()

    play.expect(
        """
        slave > handshake of 2
        master: joined 2
        master > reply: end 400, 1@0 2@300
        slave: confirm 300
        slave: cut 300
        slave: close (No space left on device), again after 5000
        """
    )

    slave.fails.clear()
    play.connect()
    assert slave.data == master.data


def test_h17_what_is_acknowledged_is_on_the_disk_where_that_is_asked_for() -> None:
    master, slave = log("abc"), ModelLog()
    slave.flushes_at_once = False
    switch_pair(master, slave, replace(OPTIONS, ack_flushed=True)).connect().expect(
        """
        slave > handshake of 2
        master: joined 2
        master > reply: end 300, 1@0
        slave > ack 0
        master > data 0+0 epoch 1@0 confirm 300
        master > data 0+300 epoch 1@0 confirm 300
        slave: save 1@0
        slave: append 0+300
        slave: confirm 300
        slave: flush
        slave > ack 300
        master: acked 2 300
        master: caught up 2 at 0
        """
    )


def test_h23_record_that_the_wire_damaged_is_cut_off_and_fetched_again() -> None:
    master, slave = log("abc"), ModelLog()
    slave.damaged_at = 100

    play = switch_pair(master, slave).connect()

    play.expect(
        """
        slave > handshake of 2
        master: joined 2
        master > reply: end 300, 1@0
        slave > ack 0
        master > data 0+0 epoch 1@0 confirm 300
        master > data 0+300 epoch 1@0 confirm 300
        slave: save 1@0
        slave: append 0+300
        slave: cut 100
        slave: close (damaged bytes from 100 on: they are not a record), again after 0
        """
    )

    slave.damaged_at = None
    play.connect()
    assert slave.data == master.data


def test_record_that_comes_damaged_over_and_over_is_not_fetched_in_a_hurry() -> None:
    master, slave = log("abc"), ModelLog()
    slave.damaged_at = 100
    play = switch_pair(master, slave).connect()
    play.lines.clear()
    play.connect()
    assert play.lines[-1].endswith("again after 5000")


def test_h23_single_mismatch_is_the_wire_and_costs_nothing() -> None:
    slave = log("abc")
    reply = HandshakeReply(300, 1, entries((1, 0)))
    play = switch_slave(slave).hears("slave", reply, Transfer(200, 1, 0, 300, b"c" * 99 + b"C"))

    play.connect().hears("slave", reply, Transfer(200, 1, 0, 300, b"c" * 100)).expect(
        """
        slave > handshake of 2
        master > reply: end 300, 1@0
        slave > ack 200
        master > data 200+100 epoch 1@0 confirm 300
        slave: close (bytes from 299 on are not those of the master; comparing again), again
            after 0
        slave > handshake of 2
        master > reply: end 300, 1@0
        slave > ack 200
        master > data 200+100 epoch 1@0 confirm 300
        slave > ack 300
        """
    )

    assert slave.answer() == "0-300 abc 1@0"


def test_h25_acknowledgement_before_the_handshake_counts_for_nothing() -> None:
    switch_master(log("abc")).hears("master", Ack(300)).expect(
        """
        slave > ack 300
        master: close (acknowledgement of 300 before any handshake), again after 0
        """
    )
