"""The cases of `test_watermark_cases` in the classic protocol, which has no epochs."""

from __future__ import annotations

from dataclasses import replace

from rmqstore.replication.protocol.events import Closed
from rmqstore.replication.protocol.frames import ClassicData
from tests.scenarios.pairs import (
    OPTIONS,
    SIXTEEN,
    classic_pair,
    classic_slave,
    unconfirmed_log,
)


def test_case_1_1_in_the_classic_protocol() -> None:
    master, slave = unconfirmed_log(SIXTEEN).trim(1000), unconfirmed_log("abc")
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
    assert slave.answer() == "1000-1600 klmnop 1@0"


def test_case_1_1_in_the_classic_protocol_without_permission_halts_and_touches_nothing() -> None:
    slave = unconfirmed_log("abc")
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

    assert slave.answer() == "0-300 abc 1@0"


def test_case_1_1_in_the_classic_protocol_under_a_java_master() -> None:
    slave = unconfirmed_log("abc")
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

    assert slave.answer() == "2000-2100 k 1@0"


def test_case_1_1_in_the_classic_protocol_a_java_master_that_was_busy_is_asked_again() -> None:
    slave = unconfirmed_log("abc")
    play = classic_slave(slave).hears("slave", ClassicData(200)).wait(10001)
    play.hears("slave", ClassicData(200)).connect()
    # A Java master that is asked from its first byte begins at that of its last file.
    play.hears("slave", ClassicData(2000, b"k" * 100)).connect()
    play.hears("slave", ClassicData(200, b"c" * 100 + b"d" * 100)).expect(
        """
        slave > report 200
        master > data 200+0
        -- 10001 ms
        slave > report 200
        master > data 200+0
        slave: close (the master does not hold byte 200; asking from its first byte), again
            after 0
        slave > report 0
        master > data 2000+100
        slave: close (the master's log seems to begin at 2000, after 300 where this log ends;
            asking again), again after 0
        slave > report 200
        master > data 200+200
        slave: append 300+100
        slave > report 400
        """
    )
    assert slave.answer() == "0-400 abcd 1@0"


def test_case_1_2_and_2_2_in_the_classic_protocol() -> None:
    master, slave = unconfirmed_log("abcdef"), unconfirmed_log("abc")
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
    assert slave.answer() == "0-600 abcdef 1@0"


def test_case_2_3_in_the_classic_protocol_halts_when_bytes_differ() -> None:
    master, slave = unconfirmed_log("abcXYZUVW"), unconfirmed_log("abcdef")
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
            tell where the logs parted. Nothing was touched; compare them with rmqstore diff. If
            the master has lost messages that are here, make this replica the master, else empty
            it)
        """
    )
    assert slave.answer() == "0-600 abcdef 1@0"


def test_case_2_3_in_the_classic_protocol_halts_under_a_shorter_java_master() -> None:
    slave = unconfirmed_log("abcdef")
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
        slave: halt (this log ends at 600, its master's at 200: what is between is only here.
            Nothing was touched; if the master has lost it with its machine or its disk, make
            this replica the master, else copy what is needed of it and empty this replica)
        """
    )

    assert slave.answer() == "0-600 abcdef 1@0"


def test_a_classic_slave_waits_for_a_master_that_has_no_allowance_for_a_second() -> None:
    slave = unconfirmed_log("abcdef")
    play = classic_slave(slave, replace(OPTIONS, heartbeat_ms=100))
    play.hears("slave", ClassicData(500), ClassicData(500, b"f" * 50))
    play.lines.clear()

    play.wait(1000).hears("slave", ClassicData(550)).wait(1001).hears("slave", ClassicData(550))
    play.expect(
        """
        -- 1000 ms
        slave > report 550
        master > data 550+0
        -- 1001 ms
        slave > report 550
        master > data 550+0
        slave: halt (this log ends at 600, its master's at 550: what is between is only here.
            Nothing was touched; if the master has lost it with its machine or its disk, make
            this replica the master, else copy what is needed of it and empty this replica)
        """
    )


def test_case_2_3_in_the_classic_protocol_is_refused_by_a_shorter_master() -> None:
    master, slave = unconfirmed_log("abc"), unconfirmed_log("abcdef")
    classic_pair(master, slave).connect().expect(
        """
        slave > report 500
        master: close (the slave reports that its log ends at 500, this one ends at 300: it is
            the slave of another log, or ahead), again after 0
        slave: close (the master closed the connection and had sent nothing: it is not master
            now, or its log ends before byte 500, which this slave asked for), again after 5000
        """
    )
    assert slave.answer() == "0-600 abcdef 1@0"


def test_case_2_3_in_the_classic_protocol_asks_a_shorter_master_from_further_back() -> None:
    master, slave = unconfirmed_log("abc"), unconfirmed_log("abcdef")
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
        slave: halt (this log ends at 600, its master's at 300: what is between is only here.
            Nothing was touched; if the master has lost it with its machine or its disk, make
            this replica the master, else copy what is needed of it and empty this replica)
        master: acked 2 300
        """
    )

    assert slave.answer() == "0-600 abcdef 1@0"


def test_case_2_3_in_the_classic_protocol_forked_from_a_shorter_master_halts() -> None:
    master, slave = unconfirmed_log("abx"), unconfirmed_log("abcdef")
    play = classic_pair(master, slave)
    for _ in range(3):
        play.connect()
    play.lines[:] = play.lines[-1:]
    play.expect(
        """
        slave: halt (bytes from 200 on are not those of the master, and this protocol cannot
            tell where the logs parted. Nothing was touched; compare them with rmqstore diff. If
            the master has lost messages that are here, make this replica the master, else empty
            it)
        """
    )
    assert play.slave is not None
    assert play.slave.shared_end == 200


def test_classic_slave_of_a_peer_that_is_not_master_asks_for_little_again() -> None:
    play = classic_slave(unconfirmed_log("abcdef"))
    for _ in range(3):
        play.handle("slave", Closed()).connect()
    asked = [line for line in play.lines if line.startswith("slave > report")]
    assert asked == ["slave > report 500", "slave > report 1"] * 2
