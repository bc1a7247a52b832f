"""Hazards of RocketMQ's replication in epochs, their lists, forks and cuts, against both machines.

docs/defects.md, "Replication", numbers H1 and on, and the two defects that 5.5.0 brought. A Java
peer is played by the frames it sends. Hazards of acknowledgements: `test_ha_ack_hazards`.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from rmqstore.epochs import EpochEntry, EpochList, epoch_at
from rmqstore.replication.protocol.events import HaState
from rmqstore.replication.protocol.frames import Ack, HandshakeReply
from tests.scenarios.ha_model import Died, EpochDisk, ModelLog, entries
from tests.scenarios.pairs import (
    HELLO,
    LIKE_JAVA,
    OPTIONS,
    log,
    switch_master,
    switch_pair,
    switch_slave,
)


def test_h1_two_epochs_that_begin_at_one_offset_do_not_hide_a_fork() -> None:
    master, slave = log("abc").begin(2).begin(3).put("YYY"), log("abc").begin(2).put("X")
    switch_pair(master, slave, LIKE_JAVA).connect().expect(
        """
        slave > handshake of 2
        master: joined 2
        master > reply: end 600, 1@0 2@300 3@300
        slave: cut 300
        slave: save 1@0
        slave: save 1@0 2@300 3@300
        slave > ack 300
        master > data 300+0 epoch 3@300 confirm 300
        master > data 300+300 epoch 3@300 confirm 300
        slave: append 300+300
        slave > ack 600
        master: acked 2 600
        master: caught up 2 at 0
        """
    )
    assert slave.data == master.data


def test_h1_fork_that_a_java_masters_epoch_list_hides_is_found_by_comparing() -> None:
    # The master is of epoch 3 and was refused the entry 3@300.
    master, slave = log("abc").begin(2).put("YYY"), log("abc").begin(2).put("X")
    play = switch_pair(master, slave).connect()

    play.connect().connect().expect(
        """
        slave > handshake of 2
        master: joined 2
        master > reply: end 600, 1@0 2@300
        slave > ack 300
        master > data 300+0 epoch 2@300 confirm 300
        master > data 300+300 epoch 2@300 confirm 300
        slave: close (bytes from 300 on are not those of the master; comparing again), again
            after 0
        slave > handshake of 2
        master: joined 2
        master > reply: end 600, 1@0 2@300
        slave > ack 300
        master > data 300+0 epoch 2@300 confirm 300
        master > data 300+300 epoch 2@300 confirm 300
        slave: close (bytes from 300 on are not those of the master, whatever both epoch lists
            say; cutting to 300), again after 0
        slave > handshake of 2
        master: joined 2
        master > reply: end 600, 1@0 2@300
        slave: cut 300
        slave: save 1@0
        slave > ack 200
        master > data 200+0 epoch 1@0 confirm 300
        master > data 200+100 epoch 2@300 confirm 300
        master > data 300+300 epoch 2@300 confirm 300
        slave: save 1@0 2@300
        slave > ack 300
        slave: append 300+300
        slave > ack 600
        master: acked 2 300
        master: acked 2 600
        master: caught up 2 at 0
        """
    )

    assert slave.data == master.data


def test_h1_epoch_that_begins_where_the_last_one_did_reaches_connected_slaves() -> None:
    master, slave = log("abc"), ModelLog()
    play = switch_pair(master, slave).connect()
    for epoch in (2, 3):
        master.begin(epoch)
        play.grew()
    assert slave.epochs == master.epochs == entries((1, 0), (2, 300), (3, 300))


def test_h2_slave_whose_epoch_list_is_ahead_of_its_log_acknowledges_its_true_end() -> None:
    slave = log("a")
    slave.epochs = entries((1, 0), (2, 360))
    play = switch_slave(slave, LIKE_JAVA)
    play.hears("slave", HandshakeReply(720, 2, entries((1, 0), (2, 360)))).wait(5001).expect(
        """
        slave > handshake of 2
        master > reply: end 720, 1@0 2@360
        slave: save 1@0
        slave > ack 100
        -- 5001 ms
        slave > ack 100
        """
    )


def test_h2_java_slave_that_acknowledges_what_it_lacks_is_not_counted() -> None:
    master = log("abcdefg")
    play = switch_master(master).hears("master", HELLO, Ack(700))
    # Its log ends at 100: it refuses the empty frame at 700 and closes.
    play.expect(
        """
        slave > handshake of 2
        master: joined 2
        master > reply: end 700, 1@0
        slave > ack 700
        master > data 700+0 epoch 1@0 confirm 700
        """
    )
    assert play.master is not None
    assert play.master.acked_offset == -1


def test_h3_slave_before_the_masters_first_byte_never_counts_as_caught_up() -> None:
    master = log("abcdefghijklmnop").trim(1000)
    play = switch_master(master).hears("master", HELLO, Ack(600)).wait(5001)
    play.hears("master", Ack(600)).expect(
        """
        slave > handshake of 2
        master: joined 2
        master > reply: end 1600, 1@0
        slave > ack 600
        master > data 1000+0 epoch 1@0 confirm 1600
        -- 5001 ms
        master > data 1000+0 epoch 1@0 confirm 1600
        slave > ack 600
        master: close (the slave's log ends at 600, before 1000 where this one begins, and it
            does not begin there: empty the slave), again after 0
        """
    )


def test_h4_epochs_that_were_cut_off_do_not_return_with_a_restart() -> None:
    # All that this slave wrote, in epochs 1 and 2, is a fork, and it dies right after the cut.
    reply = HandshakeReply(200, 3, entries((1, 0), (3, 0)))
    slave = log("ab").begin(2).put("c")
    disk = EpochDisk()
    EpochList(tuple(slave.epochs)).save(disk)

    switch_slave(slave, LIKE_JAVA).hears("slave", reply).expect(
        """
        slave > handshake of 2
        master > reply: end 200, 1@0 3@0
        slave: confirm 0
        slave: cut 0
        slave: save no epochs
        slave: save 1@0 3@0
        slave > ack 0
        """
    )

    EpochList().save(disk)
    assert EpochList.load(disk) == EpochList()


def test_h5_epoch_that_was_last_before_the_cut_leaves_no_end_behind() -> None:
    master, slave = log("abc").begin(3).put("XYZ"), log("abc").begin(2).put("d")
    switch_pair(master, slave, LIKE_JAVA).connect()
    assert epoch_at(slave.epochs, 350) == EpochEntry(3, 300)
    assert epoch_at(slave.epochs[:1], 350) == EpochEntry(1, 0)


@pytest.mark.parametrize("dies_at", [0, 1])
def test_h12_death_while_the_epoch_list_is_saved_leaves_a_slave_that_joins(dies_at: int) -> None:
    master, slave = log("abc").begin(3).put("XYZ"), log("abc").begin(2).put("d")
    disk = EpochDisk()
    EpochList(tuple(slave.epochs)).save(disk)
    slave.cut(300)
    disk.dies_at = dies_at
    with pytest.raises(Died):
        EpochList(entries((1, 0))).save(disk)
    slave.epochs = EpochList.load(disk).restored(log_end=300).entries
    switch_pair(master, slave, LIKE_JAVA).connect()
    assert slave.answer() == master.answer()


def test_h6_log_without_an_epoch_list_is_compared_before_it_counts() -> None:
    master, slave = log("abcd"), log("abc")
    slave.epochs = ()

    switch_pair(master, slave).connect().expect(
        """
        slave > handshake of 2
        master: joined 2
        master > reply: end 400, 1@0
        slave > ack 200
        master > data 200+0 epoch 1@0 confirm 400
        master > data 200+200 epoch 1@0 confirm 400
        slave: save 1@0
        slave: append 300+100
        slave: confirm 400
        slave > ack 400
        master: acked 2 400
        master: caught up 2 at 0
        """
    )

    assert slave.answer() == "0-400 abcd 1@0"


def test_h6_log_without_an_epoch_list_that_differs_is_left_alone() -> None:
    master, slave = log("abXd"), log("abc")
    slave.epochs = ()

    switch_pair(master, slave).connect().connect().expect(
        """
        slave > handshake of 2
        master: joined 2
        master > reply: end 400, 1@0
        slave > ack 200
        master > data 200+0 epoch 1@0 confirm 400
        master > data 200+200 epoch 1@0 confirm 400
        slave: close (bytes from 200 on are not those of the master; comparing again), again
            after 0
        slave > handshake of 2
        master: joined 2
        master > reply: end 400, 1@0
        slave > ack 200
        master > data 200+0 epoch 1@0 confirm 400
        master > data 200+200 epoch 1@0 confirm 400
        slave: halt (bytes from 200 on are not those of the master, and no epoch shows where the
            logs parted; compare them with rmqstore diff, then empty this replica)
        """
    )

    assert slave.answer() == "0-300 abc no epochs"


def test_h7_first_acknowledgement_is_the_end_of_the_log_and_not_the_consistent_point() -> None:
    slave = log("abc")
    play = switch_slave(slave, LIKE_JAVA)
    play.hears("slave", HandshakeReply(700, 1, entries((1, 0)))).expect(
        """
        slave > handshake of 2
        master > reply: end 700, 1@0
        slave > ack 300
        """
    )


def test_h11_more_than_a_thousand_epochs_join() -> None:
    master = ModelLog(file_size=10**6)
    for epoch in range(1, 1501):
        master.begin(epoch).put("ab"[epoch % 2], size=10)
    slave = ModelLog()
    switch_pair(master, slave, replace(OPTIONS, batch_bytes=400)).connect()
    assert slave.data == master.data
    assert slave.epochs == master.epochs


def test_h14_case_3_3_leaves_the_log_as_it_is() -> None:
    slave = log("abcdefghijklmnop").trim(1000)
    play = switch_slave(slave).hears("slave", HandshakeReply(300, 1, entries((1, 0))))
    play.expect(
        """
        slave > handshake of 2
        master > reply: end 300, 1@0
        slave: halt (this log begins at 1000, its master's ends at 300: the master has lost
            data, or is not the master of this log. Nothing was touched; make the right replica
            master, or empty this one)
        """
    )
    assert slave.answer() == "1000-1600 klmnop 1@0"
    assert play.slave is not None
    assert play.slave.state is HaState.SUSPEND


def test_h22_issue_9689_epoch_that_begins_while_slaves_are_connected_reaches_them() -> None:
    master, slave = log("abc"), ModelLog()
    play = switch_pair(master, slave).connect()
    play.lines.clear()

    master.begin(2)
    play.grew()
    master.put("d")

    play.grew().expect(
        """
        master > data 300+0 epoch 2@300 confirm 300
        slave: save 1@0 2@300
        master > data 300+100 epoch 2@300 confirm 300
        slave: append 300+100
        slave > ack 400
        master: acked 2 400
        master: caught up 2 at 0
        """
    )

    assert slave.epochs == master.epochs


def test_release_550_stale_epochs_of_a_slave_do_not_outlive_the_cut() -> None:
    # The fork ran over epochs 4 and 5; the master went on from 4 with 7.
    master = log("ab").begin(4).put("cd").begin(7).put("XYZ")
    slave = log("ab").begin(4).put("cdef").begin(5).put("g")

    switch_pair(master, slave, LIKE_JAVA).connect().expect(
        """
        slave > handshake of 2
        master: joined 2
        master > reply: end 700, 1@0 4@200 7@400
        slave: cut 400
        slave: save 1@0 4@200
        slave: save 1@0 4@200 7@400
        slave > ack 400
        master > data 400+0 epoch 7@400 confirm 200
        master > data 400+300 epoch 7@400 confirm 200
        slave: append 400+300
        slave > ack 700
        master: acked 2 700
        master: caught up 2 at 0
        """
    )

    assert slave.answer() == master.answer()


def test_release_550_stale_list_of_a_master_does_not_make_a_fork_look_equal() -> None:
    # A 5.5.0 replica kept 5@400 after its cut there, took the bytes of epoch 7 and became master
    # of epoch 8. A third one stopped with the true epoch 5.
    master = log("ab").begin(4).put("cd").begin(5).put("XYZ").begin(8).put("w")
    slave = log("ab").begin(4).put("cd").begin(5).put("g")
    play = switch_pair(master, slave).connect().connect().connect()
    assert slave.data == master.data

    play.expect(
        """
        slave > handshake of 2
        master: joined 2
        master > reply: end 800, 1@0 4@200 5@400 8@700
        slave > ack 400
        master > data 400+0 epoch 5@400 confirm 200
        master > data 400+300 epoch 8@700 confirm 200
        master > data 700+100 epoch 8@700 confirm 200
        slave: close (bytes from 400 on are not those of the master; comparing again), again
            after 0
        slave > handshake of 2
        master: joined 2
        master > reply: end 800, 1@0 4@200 5@400 8@700
        slave > ack 400
        master > data 400+0 epoch 5@400 confirm 200
        master > data 400+300 epoch 8@700 confirm 200
        master > data 700+100 epoch 8@700 confirm 200
        slave: close (bytes from 400 on are not those of the master, whatever both epoch lists
            say; cutting to 400), again after 0
        slave > handshake of 2
        master: joined 2
        master > reply: end 800, 1@0 4@200 5@400 8@700
        slave: cut 400
        slave: save 1@0 4@200
        slave > ack 300
        master > data 300+0 epoch 4@200 confirm 200
        master > data 300+100 epoch 5@400 confirm 200
        master > data 400+300 epoch 8@700 confirm 200
        master > data 700+100 epoch 8@700 confirm 200
        slave: save 1@0 4@200 5@400
        slave > ack 400
        slave: append 400+300
        slave: save 1@0 4@200 5@400 8@700
        slave > ack 700
        slave: append 700+100
        slave > ack 800
        master: acked 2 400
        master: acked 2 700
        master: acked 2 800
        master: caught up 2 at 0
        """
    )


def test_release_550_point_that_is_no_record_gives_way_to_an_earlier_one() -> None:
    master = log("ab").begin(4).put("cd").begin(5).put("X", size=50).begin(8).put("w")
    slave = log("ab").begin(4).put("cd").begin(5).put("g")
    switch_pair(master, slave).connect()
    assert slave.data == master.data


def test_issue_10666_cut_comes_before_the_list_that_tells_of_it() -> None:
    slave = log("abc").begin(2).put("X")
    reply = HandshakeReply(500, 3, entries((1, 0), (3, 300)))
    switch_slave(slave).hears("slave", reply).expect(
        """
        slave > handshake of 2
        master > reply: end 500, 1@0 3@300
        slave: cut 300
        slave: save 1@0
        slave > ack 200
        """
    )


def test_epoch_list_of_a_restarted_slave_never_runs_ahead_of_its_log() -> None:
    kept = EpochList(entries((1, 0), (2, 360))).restored(log_end=120)
    assert kept.entries == entries((1, 0))
