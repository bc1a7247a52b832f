"""What consumers that broadcast have pulled, for those that move and those that come later
(behaviour of RocketMQ's BroadcastOffsetManagerTest)."""

from __future__ import annotations

from rmqstore.broker.broadcast_offsets import (
    BroadcastOffsets,
    Reader,
    group_of_progress,
    name_of_progress,
)

OFFLINE_MS, ONLINE_MS = 100, 300


def offsets() -> BroadcastOffsets:
    return BroadcastOffsets(offline_ms=OFFLINE_MS, online_ms=ONLINE_MS)


def reader(name: str = "a", *, is_proxied: bool = False, group: str = "g") -> Reader:
    return Reader("T", group, name, is_proxied)


def lowest(known: BroadcastOffsets, now_ms: int, *online: str) -> dict[str, dict[int, int]]:
    found = known.lowest(lambda _, client_id: client_id in online, now_ms=now_ms)
    return {group: dict(queues) for _, group, queues in found}


def test_lowest_progress_of_a_group_is_that_of_its_slowest_client_in_each_queue() -> None:
    known = offsets()
    known.pulled(reader("a"), 0, 10, now_ms=0)
    known.pulled(reader("a"), 1, 3, now_ms=0)
    known.pulled(reader("b"), 0, 7, now_ms=0)
    known.pulled(reader("c", group="other"), 0, 1, now_ms=0)
    assert lowest(known, 1) == {"g": {0: 7, 1: 3}, "other": {0: 1}}


def test_progress_of_a_client_does_not_go_back() -> None:
    known = offsets()
    known.pulled(reader(), 0, 10, now_ms=0)
    known.pulled(reader(), 0, 4, now_ms=0)
    assert known.offset(reader(), 0) == 10
    assert known.offset(reader(), 1) is None


def test_silent_clients_are_forgotten_and_those_online_later() -> None:
    known = offsets()
    known.pulled(reader("gone"), 0, 1, now_ms=0)
    known.pulled(reader("online"), 0, 5, now_ms=0)
    assert lowest(known, OFFLINE_MS - 1, "online") == {"g": {0: 1}}
    assert lowest(known, OFFLINE_MS, "online") == {"g": {0: 5}}
    assert known.offset(reader("gone"), 0) is None
    lowest(known, ONLINE_MS, "online")
    assert known.offset(reader("online"), 0) is None
    assert lowest(known, ONLINE_MS + 1, "online") == {}


def test_client_that_moves_to_a_proxy_or_from_it_needs_its_offset_once() -> None:
    known = offsets()
    known.pulled(reader(), 0, 10, now_ms=0)
    assert not known.needs_offset(reader(), 3)
    moved = reader(is_proxied=True)
    assert known.needs_offset(moved, 3)
    known.pulled(moved, 0, 10, now_ms=0)
    assert not known.needs_offset(moved, 10)
    assert known.needs_offset(reader(), 3)


def test_first_pull_of_a_proxy_needs_an_offset_and_that_of_another_client_has_one() -> None:
    known = offsets()
    assert known.needs_offset(reader(is_proxied=True), -1)
    assert not known.needs_offset(reader(is_proxied=True), 0)
    assert not known.needs_offset(reader(), -1)


def test_name_of_the_progress_of_a_group() -> None:
    assert name_of_progress("g") == "g@broadcast"
    assert group_of_progress("g@broadcast") == group_of_progress("g") == "g"
