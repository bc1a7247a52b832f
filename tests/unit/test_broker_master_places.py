"""The addresses at which a slave reaches its master, where the announced one does not answer."""

from __future__ import annotations

import pytest

from rmqstore.broker.membership.master_places import MasterPlaces, MasterSearch, other_places
from rmqstore.net.addresses import parse_address

PUBLIC, INSIDE, HA = "198.51.100.1:10911", "10.0.0.1:10911", "10.0.0.1:10912"


def test_port_for_clients_is_tried_at_the_host_of_the_ha_address() -> None:
    assert other_places(parse_address(PUBLIC), HA) == (parse_address(INSIDE),)
    assert other_places(parse_address(PUBLIC), "[fd00::1]:7") == (("fd00::1", 10911),)


@pytest.mark.parametrize("ha_address", ["", "198.51.100.1:10912", "no address", "h:0", ":1", "h"])
def test_there_is_no_other_place_without_another_host(ha_address: str) -> None:
    assert other_places(parse_address(PUBLIC), ha_address) == ()


def test_ha_address_of_a_nameserver_is_taken_for_this_master_alone() -> None:
    search = MasterSearch(PUBLIC)
    assert not search.named("198.51.100.2:10911", HA)
    assert not search.named("", "")
    assert not search.named(PUBLIC, "nonsense")
    assert search.places == (parse_address(PUBLIC),)
    assert search.named(PUBLIC, HA)
    assert not search.named(PUBLIC, HA)
    assert search.places == (parse_address(PUBLIC), parse_address(INSIDE))


def test_master_that_does_not_answer_is_searched_at_once_and_reported_once_that_lasts() -> None:
    search = MasterSearch(PUBLIC)
    assert (search.is_unreached, search.trouble) == (False, "")
    search.failed(parse_address(PUBLIC), "refused")
    assert search.is_unreached
    assert not search.is_out_of_reach
    assert search.trouble == ""
    search.failed(parse_address(PUBLIC), "refused")
    assert search.is_out_of_reach
    assert f"the master {PUBLIC} is not reached" in search.trouble
    assert f"{PUBLIC}: refused" in search.trouble
    search.answered()
    assert (search.is_unreached, search.is_out_of_reach, search.trouble) == (False, False, "")


def test_failure_at_another_place_says_nothing_about_the_announced_one() -> None:
    search = MasterSearch(PUBLIC)
    search.named(PUBLIC, HA)
    search.failed(parse_address(INSIDE), "refused")
    assert not search.is_unreached


def test_another_broker_at_the_place_is_not_the_master() -> None:
    search = MasterSearch(PUBLIC)
    search.named(PUBLIC, HA)
    assert search.is_master(parse_address(PUBLIC), None), "it is asked until it is master"
    assert search.is_master(parse_address(INSIDE), PUBLIC)
    assert not search.is_master(parse_address(INSIDE), INSIDE)
    assert not search.is_master(parse_address(INSIDE), None)


def test_requests_go_to_the_next_place_after_a_failure_and_stay_while_it_answers() -> None:
    places = MasterPlaces(parse_address(PUBLIC), (parse_address(INSIDE),))
    assert (places.present, places.is_doubtful) == (parse_address(PUBLIC), False)
    places.failed()
    assert (places.present, places.is_doubtful) == (parse_address(INSIDE), True)
    assert not places.is_master("198.51.100.2:10911")
    assert places.is_doubtful
    assert places.is_master(PUBLIC)
    assert not places.is_doubtful
    places.failed()
    assert (places.present, places.is_doubtful) == (parse_address(PUBLIC), False)
    places.failed()
    assert places.is_doubtful, "another broker may have the place since"


def test_only_place_stays() -> None:
    places = MasterPlaces(parse_address(PUBLIC))
    places.failed()
    assert places.present == parse_address(PUBLIC)
