"""The model of a disk whose power goes, on its own."""

from __future__ import annotations

import random

from tests.support.disk_model import BLOCK, Disk, Effect, Kind, State

ALL = 1 << 20


def states(*effects: Effect, before: State | None = None) -> list[State]:
    """Return every different state that may be there after *effects*."""
    disk = Disk(before)
    for effect in effects:
        disk.apply(effect)
    found: list[State] = []
    for state in disk.crash_states(ALL, random.Random(0)):
        if state not in found:
            found.append(state)
    return found


def create(number: int, path: str) -> Effect:
    return Effect(Kind.CREATE, number, path=path)


def store(number: int, at: int, data: bytes) -> Effect:
    return Effect(Kind.STORE, number, at=at, size=len(data), data=data)


OPEN = Effect(Kind.OPEN, 0, path="f")
SYNC = Effect(Kind.SYNC, 0, at=0, size=1 << 20)
SYNC_ROOT = Effect(Kind.SYNC_DIRECTORY)


def test_synced_bytes_and_names_are_there() -> None:
    made = [create(0, "f"), store(0, 0, b"ab"), SYNC, SYNC_ROOT]
    assert states(*made) == [{"f": b"ab"}]


def test_synced_bytes_without_a_synced_name_may_be_missing() -> None:
    assert states(create(0, "f"), store(0, 0, b"ab"), SYNC) == [{}, {"f": b"ab"}]


def test_a_name_may_be_there_before_size_and_bytes() -> None:
    found = states(create(0, "f"), store(0, 0, b"ab"), SYNC_ROOT)
    assert found == [{"f": b""}, {"f": b"\0\0"}, {"f": b"ab"}]


def test_blocks_stored_to_since_the_sync_are_kept_or_lost_each_for_itself() -> None:
    before: State = {"f": bytes(2 * BLOCK)}
    found = states(OPEN, store(0, BLOCK - 1, b"ab"), before=before)
    kept = [(state["f"] or b"")[BLOCK - 1 : BLOCK + 1] for state in found]
    assert sorted(kept) == [b"\0\0", b"\0b", b"a\0", b"ab"]


def test_a_block_holds_what_it_held_at_one_moment() -> None:
    found = states(OPEN, store(0, 0, b"a"), store(0, 1, b"b"), before={"f": b"--"})
    assert found == [{"f": b"--"}, {"f": b"a-"}, {"f": b"ab"}]


def test_a_sync_of_a_range_leaves_the_rest_open() -> None:
    before: State = {"f": b"-" * 2 * BLOCK}
    synced = Effect(Kind.SYNC, 0, at=0, size=BLOCK)
    found = states(OPEN, store(0, 0, b"a"), store(0, BLOCK, b"b"), synced, before=before)
    kept = [((state["f"] or b"")[:1], (state["f"] or b"")[BLOCK : BLOCK + 1]) for state in found]
    assert kept == [(b"a", b"-"), (b"a", b"b")]


def test_names_of_one_folder_keep_their_order() -> None:
    unlinked = Effect(Kind.UNLINK, path="f")
    found = states(unlinked, create(1, "g"), before={"f": b""})
    assert found == [{"f": b""}, {}, {"g": b""}]


def test_a_cut_that_reached_the_disk_took_the_bytes_along() -> None:
    cut = [OPEN, Effect(Kind.RESIZE, 0, size=0), Effect(Kind.RESIZE, 0, size=2)]
    found = states(*cut, store(0, 0, b"cd"), before={"f": b"ab"})
    assert found == [{"f": b"ab"}, {"f": b""}, {"f": b"\0\0"}, {"f": b"cd"}]


def test_made_folders_are_there_at_once() -> None:
    made = Effect(Kind.MAKE_DIRECTORY, path="a/b")
    assert states(made, create(0, "a/b/f")) == [
        {"a": None, "a/b": None},
        {"a": None, "a/b": None, "a/b/f": b""},
    ]


def test_a_folder_made_without_syncs_may_be_missing_with_all_it_holds() -> None:
    made = Effect(Kind.MAKE_UNSYNCED_DIRECTORY, path="a")
    synced = [Effect(Kind.SYNC_DIRECTORY, path="a"), Effect(Kind.SYNC, 0, size=1)]
    assert states(made, create(0, "a/f"), store(0, 0, b"x"), *synced) == [
        {},
        {"a": None, "a/f": b"x"},
    ]
    assert states(made, made, Effect(Kind.SYNC_DIRECTORY)) == [{"a": None}]


def test_many_states_are_chosen_from_with_the_extremes_among_them() -> None:
    before: State = {"f": bytes(40 * BLOCK)}
    disk = Disk(before)
    disk.apply(OPEN)
    for number in range(40):
        disk.apply(store(0, number * BLOCK, b"x"))
    found = list(disk.crash_states(20, random.Random(1)))
    counts = [(state["f"] or b"").count(b"x") for state in found]
    assert len(found) == 20
    assert counts[:2] == [0, 40]
    assert {1, 39} <= set(counts)
