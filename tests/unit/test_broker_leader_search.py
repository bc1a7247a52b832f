"""Where a broker finds the leader of its controllers, which name it by their own addresses."""

from __future__ import annotations

from rmqstore.broker.membership.leader_search import LeaderSearch
from rmqstore.remoting.headers.controller import GetControllerMetadataResponseHeader

ONE, TWO, THREE = "10.0.0.1:9878", "10.0.0.2:9878", "10.0.0.3:9878"
INSIDE = "192.168.0.1:9878"


def heard(search: LeaderSearch, asked: str, named: str | None, *, leads: bool = False) -> None:
    header = GetControllerMetadataResponseHeader(leader_address=named, is_leader=leads)
    search.answered(asked, header)


def test_leader_that_names_itself_by_another_address_is_used_where_it_answered() -> None:
    search = LeaderSearch()
    heard(search, ONE, INSIDE, leads=True)
    assert search.best() == ONE


def test_followers_name_the_same_leader_by_the_same_name() -> None:
    search = LeaderSearch()
    heard(search, TWO, INSIDE)
    heard(search, THREE, INSIDE)
    assert search.best() == INSIDE
    assert search.named_by(INSIDE) == [TWO, THREE]
    heard(search, ONE, INSIDE, leads=True)
    assert (search.best(), search.votes(ONE)) == (ONE, 3)


def test_leader_that_does_not_name_itself_is_used_where_it_answered() -> None:
    search = LeaderSearch()
    heard(search, ONE, None, leads=True)
    heard(search, TWO, "")
    assert search.best() == ONE


def test_name_of_a_leader_that_no_longer_leads_is_not_read_as_its_address() -> None:
    search = LeaderSearch()
    heard(search, ONE, INSIDE, leads=True)
    heard(search, ONE, TWO)
    assert search.best() == TWO
    heard(search, ONE, INSIDE)
    assert search.best() == INSIDE


def test_address_at_which_a_controller_answers_is_read_as_it_is() -> None:
    search = LeaderSearch()
    heard(search, ONE, TWO, leads=True)
    assert search.best() == ONE
    heard(search, TWO, TWO, leads=True)
    assert search.best(TWO) == TWO


def test_former_leader_that_names_itself_is_outvoted() -> None:
    search = LeaderSearch()
    heard(search, ONE, INSIDE, leads=True)
    heard(search, TWO, TWO, leads=True)
    heard(search, THREE, TWO)
    assert search.best(ONE) == TWO


def test_controller_without_an_answer_has_no_vote() -> None:
    search = LeaderSearch()
    heard(search, ONE, TWO)
    search.failed(ONE)
    assert search.best() is None
    heard(search, ONE, TWO)
    search.forget()
    assert search.best() is None


def test_warning_names_who_named_the_address() -> None:
    search = LeaderSearch()
    heard(search, TWO, INSIDE)
    heard(search, THREE, INSIDE)
    text = search.no_answer(INSIDE)
    assert f"does not answer at {INSIDE}, as {TWO}, {THREE} names it" in text
    assert "controllerDLegerPeers" in text
