"""Where a slave's log lies against its master's: the six cases of RocketMQ's design of 5.0.

X-Y: region of the slave's first byte, region of its end; 1 before the master's first byte, 2 within
the master's log, 3 behind its end.
"""

from __future__ import annotations

from dataclasses import replace

from rmqstore.replication.protocol.events import Closed
from rmqstore.replication.protocol.frames import HandshakeReply, Transfer
from tests.scenarios.ha_model import entries
from tests.scenarios.pairs import (
    OPTIONS,
    SIXTEEN,
    switch_pair,
    switch_slave,
    unconfirmed_log,
)


def test_case_1_1_slave_that_may_begin_anew_does_so_at_the_masters_first_byte() -> None:
    master, slave = unconfirmed_log(SIXTEEN).trim(1000), unconfirmed_log("abc")
    switch_pair(master, slave, begin_anew=True).connect().expect(
        """
        slave > handshake of 2
        master: joined 2
        master > reply: end 1600, 1@0
        slave > ack 200
        master > data 1000+0 epoch 1@0 confirm 0
        slave > ack 1000
        master > data 1000+0 epoch 1@0 confirm 0
        master > data 1000+600 epoch 1@0 confirm 0
        slave: restart 1000
        slave: append 1000+600
        slave > ack 1600
        master: acked 2 1600
        master: caught up 2 at 0
        """
    )
    assert slave.answer() == "1000-1600 klmnop 1@0"


def test_case_1_1_without_permission_halts_and_touches_nothing() -> None:
    master, slave = unconfirmed_log(SIXTEEN).trim(1000), unconfirmed_log("abc")
    switch_pair(master, slave).connect().connect().expect(
        """
        slave > handshake of 2
        master: joined 2
        master > reply: end 1600, 1@0
        slave > ack 200
        master > data 1000+0 epoch 1@0 confirm 0
        slave: close (the master's log seems to begin at 1000, after 300 where this log ends;
            asking again), again after 0
        slave > handshake of 2
        master: joined 2
        master > reply: end 1600, 1@0
        slave > ack 200
        master > data 1000+0 epoch 1@0 confirm 0
        slave: halt (this log ends at 300, its master's begins at 1000: the master has deleted
            what comes next, or is not the master of this log. Nothing was touched; if the
            address is right, permit this replica to begin anew (begin_anew=True, --begin-anew),
            or empty it)
        """
    )
    assert slave.answer() == "0-300 abc 1@0"


def test_case_1_1_gives_up_nothing_before_log_data_has_come() -> None:
    slave = unconfirmed_log("abc")
    reply, first = HandshakeReply(1600, 1, entries((1, 0))), Transfer(1000, 1, 0, 1600)
    play = switch_slave(slave, begin_anew=True).hears("slave", reply, first, first)

    play.handle("slave", Closed()).expect(
        """
        slave > handshake of 2
        master > reply: end 1600, 1@0
        slave > ack 200
        master > data 1000+0 epoch 1@0 confirm 1600
        slave > ack 1000
        master > data 1000+0 epoch 1@0 confirm 1600
        slave: confirm 200
        slave: close (the master closed the connection), again after 5000
        """
    )

    assert slave.answer() == "0-300 abc 1@0"


def test_case_1_1_that_one_turned_bit_made_costs_a_connection() -> None:
    slave = unconfirmed_log("abc")
    reply = HandshakeReply(1600, 1, entries((1, 0)))
    play = switch_slave(slave).hears("slave", reply, Transfer(1000, 1, 0, 1600)).connect()
    play.hears("slave", reply, Transfer(200, 1, 0, 400, b"c" * 100 + b"d" * 100))
    assert slave.answer() == "0-400 abcd 1@0"


def test_case_1_1_under_a_java_master_that_answers_heartbeats_only() -> None:
    slave = unconfirmed_log("abc")
    reply, idle = HandshakeReply(1600, 1, entries((1, 0))), Transfer(200, 1, 0, 1600)
    play = switch_slave(slave, begin_anew=True).hears("slave", reply, idle)

    play.wait(5000).hears("slave", idle).wait(5001).hears("slave", idle).expect(
        """
        slave > handshake of 2
        master > reply: end 1600, 1@0
        slave > ack 200
        master > data 200+0 epoch 1@0 confirm 1600
        slave: confirm 200
        -- 5000 ms
        master > data 200+0 epoch 1@0 confirm 1600
        -- 5001 ms
        slave > ack 200
        master > data 200+0 epoch 1@0 confirm 1600
        slave: close (the master does not hold byte 200; asking from its first byte), again
            after 0
        """
    )

    play.connect().hears(
        "slave", reply, Transfer(1000, 1, 0, 1600), Transfer(1000, 1, 0, 1600, b"k" * 100)
    ).expect(
        """
        slave > handshake of 2
        master > reply: end 1600, 1@0
        slave > ack 0
        master > data 1000+0 epoch 1@0 confirm 1600
        slave > ack 1000
        master > data 1000+100 epoch 1@0 confirm 1600
        slave: restart 1000
        slave: append 1000+100
        slave: confirm 1100
        slave > ack 1100
        """
    )

    assert slave.answer() == "1000-1100 k 1@0"


def test_case_1_1_under_a_java_master_that_deleted_all_common_epochs() -> None:
    slave = unconfirmed_log("abc")
    play = switch_slave(slave, begin_anew=True).hears(
        "slave", HandshakeReply(1600, 7, entries((7, 900)))
    )

    play.hears("slave", Transfer(1000, 7, 900, 1600, b"k" * 100)).expect(
        """
        slave > handshake of 2
        master > reply: end 1600, 7@900
        slave > ack 0
        master > data 1000+100 epoch 7@900 confirm 1600
        slave: restart 1000
        slave: save 7@900
        slave: append 1000+100
        slave: confirm 1100
        slave > ack 1100
        """
    )

    assert slave.answer() == "1000-1100 k 7@900"


def test_case_1_1_that_was_none_compares_and_goes_on() -> None:
    slave = unconfirmed_log("abc")
    reply, idle = HandshakeReply(400, 1, entries((1, 0))), Transfer(200, 1, 0, 400)
    play = switch_slave(slave).hears("slave", reply, idle).wait(10001).hears("slave", idle)
    play.lines.clear()

    bytes_ = b"".join(letter * 100 for letter in (b"a", b"b", b"c", b"d"))
    play.connect().hears("slave", reply, Transfer(0, 1, 0, 400, bytes_)).expect(
        """
        slave > handshake of 2
        master > reply: end 400, 1@0
        slave > ack 0
        master > data 0+400 epoch 1@0 confirm 400
        slave: append 300+100
        slave: confirm 300
        slave: confirm 400
        slave > ack 400
        """
    )

    assert slave.answer() == "0-400 abcd 1@0"


def test_case_1_1_never_believes_a_beginning_behind_the_masters_end() -> None:
    slave = unconfirmed_log("abc")
    play = switch_slave(slave).hears("slave", HandshakeReply(1600, 1, entries((1, 0))))
    play.hears("slave", Transfer(5000, 1, 0, 1600)).expect(
        """
        slave > handshake of 2
        master > reply: end 1600, 1@0
        slave > ack 200
        master > data 5000+0 epoch 1@0 confirm 1600
        slave: close (the master sent byte 5000 where 200 was to come; this log ends at 300),
            again after 5000
        """
    )
    assert slave.answer() == "0-300 abc 1@0"


def test_case_1_2_slave_behind_follows() -> None:
    master, slave = unconfirmed_log(SIXTEEN).trim(1000), unconfirmed_log("abcdefghijkl")
    switch_pair(master, slave).connect().expect(
        """
        slave > handshake of 2
        master: joined 2
        master > reply: end 1600, 1@0
        slave > ack 1100
        master > data 1100+0 epoch 1@0 confirm 0
        master > data 1100+500 epoch 1@0 confirm 0
        slave: append 1200+400
        slave > ack 1600
        master: acked 2 1600
        master: caught up 2 at 0
        """
    )
    assert slave.answer() == "0-1600 abcdefghijklmnop 1@0"


def test_case_2_2_slave_with_less_on_both_sides_follows() -> None:
    master, slave = unconfirmed_log(SIXTEEN), unconfirmed_log("abcdefghijklm").trim(1000)
    switch_pair(master, slave).connect().expect(
        """
        slave > handshake of 2
        master: joined 2
        master > reply: end 1600, 1@0
        slave > ack 1200
        master > data 1200+0 epoch 1@0 confirm 0
        master > data 1200+400 epoch 1@0 confirm 0
        slave: append 1300+300
        slave > ack 1600
        master: acked 2 1600
        master: caught up 2 at 0
        """
    )
    assert slave.answer() == "1000-1600 klmnop 1@0"


def test_case_1_3_longer_fork_is_cut_and_follows() -> None:
    master, slave = (
        unconfirmed_log("abcdefghijkl").begin(2).put("XY").trim(1000),
        unconfirmed_log(SIXTEEN),
    )
    slave.confirm_offset = 1500

    switch_pair(master, slave).connect().expect(
        """
        slave > handshake of 2
        master: joined 2
        master > reply: end 1400, 1@0 2@1200
        slave: confirm 1200
        slave: cut 1200
        slave > ack 1100
        master > data 1100+0 epoch 1@0 confirm 0
        master > data 1100+100 epoch 2@1200 confirm 0
        master > data 1200+200 epoch 2@1200 confirm 0
        slave: save 1@0 2@1200
        slave > ack 1200
        slave: append 1200+200
        slave > ack 1400
        master: acked 2 1200
        master: acked 2 1400
        master: caught up 2 at 0
        """
    )

    assert slave.answer() == "0-1400 abcdefghijklXY 1@0 2@1200"


def test_case_2_3_longer_fork_that_begins_later_is_cut_and_follows() -> None:
    master, slave = (
        unconfirmed_log("abcdefghijkl").begin(2).put("XY"),
        unconfirmed_log(SIXTEEN).trim(1000),
    )
    switch_pair(master, slave).connect().expect(
        """
        slave > handshake of 2
        master: joined 2
        master > reply: end 1400, 1@0 2@1200
        slave: cut 1200
        slave > ack 1100
        master > data 1100+0 epoch 1@0 confirm 0
        master > data 1100+100 epoch 2@1200 confirm 0
        master > data 1200+200 epoch 2@1200 confirm 0
        slave: save 1@0 2@1200
        slave > ack 1200
        slave: append 1200+200
        slave > ack 1400
        master: acked 2 1200
        master: acked 2 1400
        master: caught up 2 at 0
        """
    )
    assert slave.answer() == "1000-1400 klXY 1@0 2@1200"


def test_case_1_3_fork_longer_than_what_is_copied_halts_and_touches_nothing() -> None:
    master, slave = unconfirmed_log("ab").begin(2).put("XY"), unconfirmed_log("abcdef")
    for size in (399, 400):
        switch_pair(master, slave, replace(OPTIONS, cut_bytes_max=size)).connect()
        assert slave.letters() == ("abcdef" if size < 400 else "abXY")


def test_case_3_3_halts_for_an_operator_and_touches_nothing() -> None:
    master, slave = unconfirmed_log("abc"), unconfirmed_log(SIXTEEN).trim(1000)
    switch_pair(master, slave).connect().wait(60000).connect().expect(
        """
        slave > handshake of 2
        master: joined 2
        master > reply: end 300, 1@0
        slave: halt (this log begins at 1000, its master's ends at 300: the master has lost
            data, or is not the master of this log. Nothing was touched; make the right replica
            master, or empty this one)
        -- 60000 ms
        """
    )
    assert slave.answer() == "1000-1600 klmnop 1@0"


def test_case_3_3_fork_before_the_slaves_first_byte_halts_and_touches_nothing() -> None:
    master = unconfirmed_log("abc").begin(2).put("ABCDEFGHIJKLMNO")
    slave = unconfirmed_log(SIXTEEN).trim(1000)
    switch_pair(master, slave).connect().expect(
        """
        slave > handshake of 2
        master: joined 2
        master > reply: end 1800, 1@0 2@300
        slave: halt (this log and its master's part at 300, before 1000 where this one begins:
            nothing of it is the master's; empty this replica)
        """
    )
    assert slave.answer() == "1000-1600 klmnop 1@0"
