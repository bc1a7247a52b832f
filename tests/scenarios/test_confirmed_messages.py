"""Confirmed and promised messages of a slave against masters that hold other bytes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.scenarios.ha_model import ModelLog
from tests.scenarios.pairs import (
    OPTIONS,
    switch_pair,
    unconfirmed_log,
)


@pytest.mark.parametrize("masters", ["", "ab", "xy"], ids=["empty", "shorter", "other"])
def test_master_that_lost_its_directory_or_its_tail_takes_nothing_confirmed_along(
    masters: str,
) -> None:
    master, slave = unconfirmed_log(masters), unconfirmed_log("abcdef")
    slave.confirm_offset = 600
    switch_pair(master, slave).connect()
    assert slave.answer() == "0-600 abcdef 1@0"


def test_master_without_its_directory_is_named_to_the_operator() -> None:
    master, slave = unconfirmed_log(""), unconfirmed_log("abc")
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
    """Offsets confirmed by RocketMQ's masters are not promises: most confirm their own end."""
    master, slave = unconfirmed_log("ab").begin(2).put("x"), unconfirmed_log("abc")
    slave.is_gated, slave.confirm_offset = True, 300
    switch_pair(master, slave, replace(OPTIONS, checks=False)).connect()
    assert slave.answer() == "0-300 abx 1@0 2@200"


def promised(letters: str) -> ModelLog:
    """Return a log of a gated group, all of which a master promised."""
    made = unconfirmed_log(letters)
    made.is_gated, made.confirm_offset, made.promised = True, made.end_offset, None
    return made


def test_promised_messages_are_not_cut_whatever_epoch_the_master_has() -> None:
    """A master that lost power comes back in a later epoch, which begins at its shorter end."""
    master, slave = unconfirmed_log("ab").begin(2).put("x"), promised("abc")
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
    assert slave.answer() == "0-300 abc 1@0"


def test_what_was_not_promised_is_cut_up_to_the_promise() -> None:
    master, slave = unconfirmed_log("ab").begin(2).put("x"), promised("ab").put("cd")
    switch_pair(master, slave).connect()
    assert slave.answer() == "0-300 abx 1@0 2@200"


def test_promise_outlives_a_master_that_promises_nothing() -> None:
    slave = promised("ab")
    slave.is_gated = False
    switch_pair(unconfirmed_log("abc"), slave).connect()
    assert (slave.answer(), slave.promised_offset) == ("0-300 abc 1@0", 200)
    switch_pair(unconfirmed_log("ab").begin(2).put("x"), slave).connect()
    assert slave.answer() == "0-300 abx 1@0 2@200"
    switch_pair(unconfirmed_log("a").begin(3).put("y"), slave).connect()
    assert slave.answer() == "0-300 abx 1@0 2@200"


def test_what_a_master_without_checks_confirms_is_no_promise() -> None:
    slave, master = unconfirmed_log("ab"), unconfirmed_log("abcd")
    slave.is_gated, slave.confirm_offset = True, 200
    master.confirm_offset = 400
    switch_pair(master, slave, replace(OPTIONS, checks=False)).connect()
    assert (slave.confirm_offset, slave.is_promised) == (400, False)


def test_confirm_offset_becomes_a_promise_when_the_master_has_confirmed_as_much() -> None:
    slave = unconfirmed_log("abcd")
    slave.is_gated, slave.confirm_offset = True, 400
    master = unconfirmed_log("abcd")
    for confirmed in (300, 400):
        master.confirm_offset = confirmed
        switch_pair(master, slave, replace(OPTIONS, checks=True)).connect()
        assert slave.is_promised == (confirmed == 400)
