"""Where a slave's log lies against its master's: the six cases of RocketMQ's design of 5.0.

X-Y: region of the slave's first byte, region of its end; 1 before the master's first byte, 2 within
the master's log, 3 behind its end.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from rmqstore.replication.events import Closed
from rmqstore.replication.frames import ClassicData, HandshakeReply, Transfer
from tests.scenarios.ha_model import ModelLog, entries
from tests.scenarios.pairs import OPTIONS, classic_pair, classic_slave, switch_pair, switch_slave

SIXTEEN = "abcdefghijklmnop"


def log(letters: str) -> ModelLog:
    return ModelLog().begin(1).put(letters)


def test_case_1_1_slave_that_may_begin_anew_does_so_at_the_masters_first_byte() -> None:
    master, slave = log(SIXTEEN).trim(1000), log("abc")
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
    assert slave.told() == "1000-1600 klmnop 1@0"


def test_case_1_1_without_permission_halts_and_touches_nothing() -> None:
    master, slave = log(SIXTEEN).trim(1000), log("abc")
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
    assert slave.told() == "0-300 abc 1@0"


def test_case_1_1_gives_up_nothing_before_log_data_has_come() -> None:
    slave = log("abc")
    reply, first = HandshakeReply(1600, 1, entries((1, 0))), Transfer(1000, 1, 0, 1600)
    play = switch_slave(slave, begin_anew=True).hears("slave", reply, first, first)
    play.tell("slave", Closed()).expect(
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
    assert slave.told() == "0-300 abc 1@0"


def test_case_1_1_that_one_turned_bit_made_costs_a_connection() -> None:
    slave = log("abc")
    reply = HandshakeReply(1600, 1, entries((1, 0)))
    play = switch_slave(slave).hears("slave", reply, Transfer(1000, 1, 0, 1600)).connect()
    play.hears("slave", reply, Transfer(200, 1, 0, 400, b"c" * 100 + b"d" * 100))
    assert slave.told() == "0-400 abcd 1@0"


def test_case_1_1_under_a_java_master_that_answers_heartbeats_only() -> None:
    slave = log("abc")
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
    assert slave.told() == "1000-1100 k 1@0"


def test_case_1_1_under_a_java_master_that_deleted_all_common_epochs() -> None:
    slave = log("abc")
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
    assert slave.told() == "1000-1100 k 7@900"


def test_case_1_1_that_was_none_compares_and_goes_on() -> None:
    slave = log("abc")
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
    assert slave.told() == "0-400 abcd 1@0"


def test_case_1_1_never_believes_a_beginning_behind_the_masters_end() -> None:
    slave = log("abc")
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
    assert slave.told() == "0-300 abc 1@0"


def test_case_1_2_slave_behind_follows() -> None:
    master, slave = log(SIXTEEN).trim(1000), log("abcdefghijkl")
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
    assert slave.told() == "0-1600 abcdefghijklmnop 1@0"


def test_case_2_2_slave_with_less_on_both_sides_follows() -> None:
    master, slave = log(SIXTEEN), log("abcdefghijklm").trim(1000)
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
    assert slave.told() == "1000-1600 klmnop 1@0"


def test_case_1_3_longer_fork_is_cut_and_follows() -> None:
    master, slave = log("abcdefghijkl").begin(2).put("XY").trim(1000), log(SIXTEEN)
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
    assert slave.told() == "0-1400 abcdefghijklXY 1@0 2@1200"


def test_case_2_3_longer_fork_that_begins_later_is_cut_and_follows() -> None:
    master, slave = log("abcdefghijkl").begin(2).put("XY"), log(SIXTEEN).trim(1000)
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
    assert slave.told() == "1000-1400 klXY 1@0 2@1200"


def test_case_1_3_fork_longer_than_what_is_copied_halts_and_touches_nothing() -> None:
    master, slave = log("ab").begin(2).put("XY"), log("abcdef")
    for size in (399, 400):
        switch_pair(master, slave, replace(OPTIONS, cut_bytes_max=size)).connect()
        assert slave.letters() == ("abcdef" if size < 400 else "abXY")


def test_case_3_3_halts_for_an_operator_and_touches_nothing() -> None:
    master, slave = log("abc"), log(SIXTEEN).trim(1000)
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
    assert slave.told() == "1000-1600 klmnop 1@0"


def test_case_3_3_fork_before_the_slaves_first_byte_halts_and_touches_nothing() -> None:
    master = log("abc").begin(2).put("ABCDEFGHIJKLMNO")
    slave = log(SIXTEEN).trim(1000)
    switch_pair(master, slave).connect().expect(
        """
        slave > handshake of 2
        master: joined 2
        master > reply: end 1800, 1@0 2@300
        slave: halt (this log and its master's part at 300, before 1000 where this one begins:
            nothing of it is the master's; empty this replica)
        """
    )
    assert slave.told() == "1000-1600 klmnop 1@0"


def test_case_1_1_in_the_classic_protocol() -> None:
    master, slave = log(SIXTEEN).trim(1000), log("abc")
    classic_pair(master, slave, begin_anew=True).connect().expect(
        """
        slave > report 200
        master > data 1000+0
        slave > report 1000
        master: acked 2 1000
        master > data 1000+600
        slave: restart 1000
        slave: append 1000+600
        slave > report 1600
        master: acked 2 1600
        """
    )
    assert slave.told() == "1000-1600 klmnop 1@0"


def test_case_1_1_in_the_classic_protocol_without_permission_halts_and_touches_nothing() -> None:
    slave = log("abc")
    play = classic_slave(slave).hears("slave", ClassicData(1 << 30)).connect()
    play.hears("slave", ClassicData(1 << 30)).expect(
        """
        slave > report 200
        master > data 1073741824+0
        slave: close (the master's log seems to begin at 1073741824, after 300 where this log
            ends; asking again), again after 0
        slave > report 200
        master > data 1073741824+0
        slave: halt (this log ends at 300, its master's begins at 1073741824: the master has
            deleted what comes next, or is not the master of this log. Nothing was touched; if
            the address is right, permit this replica to begin anew (begin_anew=True, --begin-
            anew), or empty it)
        """
    )
    assert slave.told() == "0-300 abc 1@0"


def test_case_1_1_in_the_classic_protocol_under_a_java_master() -> None:
    slave = log("abc")
    play = classic_slave(slave, begin_anew=True).hears("slave", ClassicData(200)).wait(10001)
    play.hears("slave", ClassicData(200)).expect(
        """
        slave > report 200
        master > data 200+0
        -- 10001 ms
        slave > report 200
        master > data 200+0
        slave: close (the master does not hold byte 200; asking from its first byte), again
            after 0
        """
    )
    play.connect().hears("slave", ClassicData(2000), ClassicData(2000, b"k" * 100)).expect(
        """
        slave > report 0
        master > data 2000+0
        slave > report 2000
        master > data 2000+100
        slave: restart 2000
        slave: append 2000+100
        slave > report 2100
        """
    )
    assert slave.told() == "2000-2100 k 1@0"


def test_case_1_2_and_2_2_in_the_classic_protocol() -> None:
    master, slave = log("abcdef"), log("abc")
    classic_pair(master, slave).connect().expect(
        """
        slave > report 200
        master: acked 2 200
        master > data 200+400
        slave: append 300+300
        slave > report 600
        master: acked 2 600
        """
    )
    assert slave.told() == "0-600 abcdef 1@0"


def test_case_2_3_in_the_classic_protocol_halts_when_bytes_differ() -> None:
    master, slave = log("abcXYZUVW"), log("abcdef")
    classic_pair(master, slave).connect().connect().expect(
        """
        slave > report 500
        master: acked 2 500
        master > data 500+400
        slave: close (bytes from 500 on are not those of the master; comparing again), again
            after 0
        slave > report 500
        master: acked 2 500
        master > data 500+400
        slave: halt (bytes from 500 on are not those of the master, and this protocol cannot
            tell where the logs parted; compare them with rmqstore diff, then empty this
            replica)
        """
    )
    assert slave.told() == "0-600 abcdef 1@0"


def test_case_2_3_in_the_classic_protocol_halts_under_a_shorter_java_master() -> None:
    slave = log("abcdef")
    play = classic_slave(slave).hears("slave", ClassicData(500)).wait(10001)
    play.hears("slave", ClassicData(500)).connect()
    play.hears("slave", ClassicData(0), ClassicData(0, b"a" * 100 + b"b" * 100)).wait(10001)
    play.hears("slave", ClassicData(200)).expect(
        """
        slave > report 500
        master > data 500+0
        -- 10001 ms
        slave > report 500
        master > data 500+0
        slave: close (the master does not hold byte 500; asking from its first byte), again
            after 0
        slave > report 0
        master > data 0+0
        master > data 0+200
        slave > report 200
        -- 10001 ms
        slave > report 200
        master > data 200+0
        slave: halt (this log ends at 600, its master's at 200: what lies between is only here;
            copy what is needed of it, then empty this replica)
        """
    )
    assert slave.told() == "0-600 abcdef 1@0"


def test_case_2_3_in_the_classic_protocol_is_refused_by_a_shorter_master() -> None:
    master, slave = log("abc"), log("abcdef")
    classic_pair(master, slave).connect().expect(
        """
        slave > report 500
        master: close (the slave says that its log ends at 500, this one ends at 300: it is the
            slave of another log, or ahead), again after 0
        slave: close (the master closed the connection and had sent nothing: it is not master
            now, or its log ends before byte 500, which this slave asked for), again after 5000
        """
    )
    assert slave.told() == "0-600 abcdef 1@0"


def test_case_2_3_in_the_classic_protocol_asks_a_shorter_master_from_further_back() -> None:
    master, slave = log("abc"), log("abcdef")
    play = classic_pair(master, slave).connect()
    play.lines.clear()
    play.connect().wait(5001).wait(5001).expect(
        """
        slave > report 1
        master: acked 2 1
        master > data 1+299
        slave > report 300
        master: acked 2 300
        -- 5001 ms
        master > data 300+0
        slave > report 300
        master: acked 2 300
        -- 5001 ms
        master > data 300+0
        slave > report 300
        slave: halt (this log ends at 600, its master's at 300: what lies between is only here;
            copy what is needed of it, then empty this replica)
        master: acked 2 300
        """
    )
    assert slave.told() == "0-600 abcdef 1@0"


def test_case_2_3_in_the_classic_protocol_forked_from_a_shorter_master_halts() -> None:
    master, slave = log("abx"), log("abcdef")
    play = classic_pair(master, slave)
    for _ in range(3):
        play.connect()
    play.lines[:] = play.lines[-1:]
    play.expect(
        """
        slave: halt (bytes from 200 on are not those of the master, and this protocol cannot
            tell where the logs parted; compare them with rmqstore diff, then empty this
            replica)
        """
    )
    assert play.slave is not None
    assert play.slave.shared_end == 200


def test_classic_slave_of_a_peer_that_is_not_master_asks_for_little_again() -> None:
    play = classic_slave(log("abcdef"))
    for _ in range(3):
        play.tell("slave", Closed()).connect()
    asked = [line for line in play.lines if line.startswith("slave > report")]
    assert asked == ["slave > report 500", "slave > report 1"] * 2


@pytest.mark.parametrize("masters", ["", "ab", "xy"], ids=["empty", "shorter", "other"])
def test_master_that_lost_its_directory_or_its_tail_takes_nothing_confirmed_along(
    masters: str,
) -> None:
    master, slave = log(masters), log("abcdef")
    slave.confirm_offset = 600
    switch_pair(master, slave).connect()
    assert slave.told() == "0-600 abcdef 1@0"


def test_master_without_its_directory_is_named_to_the_operator() -> None:
    master, slave = log(""), log("abc")
    slave.confirm_offset = 300
    switch_pair(master, slave).connect().expect(
        """
        slave > handshake of 2
        master: joined 2
        master > reply: end 0, 1@0
        slave: halt (this log holds confirmed messages up to 300, its master only those before
            0, and no election explains that: the master has lost them, or was elected without
            asking enough replicas. Nothing was touched; promote this replica, or one that holds
            them, else empty this one)
        """
    )


def test_confirmed_messages_are_cut_where_an_election_went_without_them() -> None:
    """What RocketMQ's masters confirm is no promise: most confirm their own end."""
    master, slave = log("ab").begin(2).put("x"), log("abc")
    slave.is_gated, slave.confirm_offset = True, 300
    switch_pair(master, slave, replace(OPTIONS, checks=False)).connect()
    assert slave.told() == "0-300 abx 1@0 2@200"


def promised(letters: str) -> ModelLog:
    """Return a log of a gated group, all of which a master promised."""
    made = log(letters)
    made.is_gated, made.confirm_offset, made.promised = True, made.end_offset, None
    return made


def test_promised_messages_are_not_cut_whatever_epoch_the_master_has() -> None:
    """A master that lost power comes back in a later epoch, which begins at its shorter end."""
    master, slave = log("ab").begin(2).put("x"), promised("abc")
    switch_pair(master, slave).connect().expect(
        """
        slave > handshake of 2
        master: joined 2
        master > reply: end 300, 1@0 2@200
        slave: halt (this log holds confirmed messages up to 300, its master only those before
            200, and no election explains that: the master has lost them, or was elected without
            asking enough replicas. Nothing was touched; promote this replica, or one that holds
            them, else empty this one)
        """
    )
    assert slave.told() == "0-300 abc 1@0"


def test_what_was_not_promised_is_cut_up_to_the_promise() -> None:
    master, slave = log("ab").begin(2).put("x"), promised("ab").put("cd")
    switch_pair(master, slave).connect()
    assert slave.told() == "0-300 abx 1@0 2@200"


def test_promise_outlives_a_master_that_promises_nothing() -> None:
    slave = promised("ab")
    slave.is_gated = False
    switch_pair(log("abc"), slave).connect()
    assert (slave.told(), slave.promised_offset) == ("0-300 abc 1@0", 200)
    switch_pair(log("ab").begin(2).put("x"), slave).connect()
    assert slave.told() == "0-300 abx 1@0 2@200"
    switch_pair(log("a").begin(3).put("y"), slave).connect()
    assert slave.told() == "0-300 abx 1@0 2@200"


def test_confirm_offset_becomes_a_promise_when_the_master_has_confirmed_as_much() -> None:
    slave = log("abcd")
    slave.is_gated, slave.confirm_offset = True, 400
    master = log("abcd")
    for confirmed in (300, 400):
        master.confirm_offset = confirmed
        switch_pair(master, slave, replace(OPTIONS, checks=True)).connect()
        assert slave.is_promised == (confirmed == 400)
