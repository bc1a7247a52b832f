"""Promises of the documents that no other test keeps."""

from __future__ import annotations

import os
import re
import shutil
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import rmqstore
from rmqstore import Durability, FlushDiskType, Message, PutError
from rmqstore.replication import (
    HaOptions,
    HaState,
    Lease,
    Master,
    Mode,
    Quorum,
    ReplicatedStore,
    Slave,
)
from tests.house import tree
from tests.support.native_store import set_clock
from tests.support.waiting import WAIT_S, wait_until

SIZES = {
    "commit_log_file_size_bytes": 1 << 16,
    "index_slot_count": 11,
    "index_entry_count": 20,
}

FORKED = """
import os, sys, rmqstore
from tests.support.waiting import spin_until

path = sys.argv[1]
store = rmqstore.open(path, commit_log_file_size_bytes=65536, index_slot_count=11,
                      index_entry_count=20)
store.put("orders", b"parent")
spin_until(lambda: len(os.listdir(f"{path}/commitlog")) == 2, "the file made ahead")
ends, alive = os.pipe()
child = os.fork()
if child == 0:
    os.close(alive)
    for call in (
        lambda: store.put("orders", b"child"),
        lambda: store.get("orders", offset=0),
        lambda: store.find("orders", "key"),
        lambda: store.truncate_to(0),
        lambda: store.flush(),
    ):
        try:
            call()
        except rmqstore.StoreClosedError:
            continue
        os._exit(1)  # it did something
    store.close()  # harmless: nothing of it is the child's
    sys.stdout.write("refused\\n")
    sys.stdout.flush()
    os.read(ends, 1)  # lives on until the parent is done
    os._exit(0)
os.close(ends)
store.put_many([bytes(1000)] * 200, topic="orders")
store.close()
with rmqstore.open(path) as again:
    print(again.queue("orders").end)
os.close(alive)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_forked_child_can_neither_use_nor_harm_the_store(tmp_path: Path) -> None:
    """Nor does a child that lives on keep the lock of a store its parent has closed."""
    answer = subprocess.run(
        [sys.executable, "-c", FORKED, str(tmp_path / "store")],
        env={**os.environ, "PYTHONPATH": str(tree.ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    assert sorted(answer.stdout.split()) == ["201", "refused"]


def test_a_clock_set_back_loses_nothing(tmp_path: Path) -> None:
    store = rmqstore.open(tmp_path / "store", **SIZES)
    now_ms = 1_700_000_000_000
    for number in range(100):
        set_clock(store, now_ms - number * 3_600_000)
        store.put("orders", bytes(2000), keys=[f"k{number}"])
        if number % 30 == 29:
            store.wait_dispatched()
            store.flush()
    store.wait_dispatched()
    store.abandon()
    with rmqstore.open(tmp_path / "store", **SIZES) as store:
        assert len(store.queue("orders")) == 100
        found = [store.find("orders", f"k{number}") for number in range(100)]
        assert [len(records) for records in found] == [1] * 100


def test_a_store_made_for_both_releases_never_gets_tag_entries(tmp_path: Path) -> None:
    for turn in range(3):
        with rmqstore.open(tmp_path / "store", **SIZES) as store:
            for number in range(30):
                store.put("orders", b"x", tags="eu", keys=[f"k{turn}-{number}"])
            store.wait_dispatched()
            assert store.find_tag("orders", "eu") == []
    with rmqstore.open(tmp_path / "other", compatibility="5.5", **SIZES) as store:
        store.put("orders", b"x", tags="eu")
        assert len(store.find_tag("orders", "eu")) == 1
    with rmqstore.open(tmp_path / "other") as store:
        store.put("orders", b"x", tags="eu")
        assert len(store.find_tag("orders", "eu")) == 2


def test_a_store_nobody_closed_is_recovered(tmp_path: Path) -> None:
    code = "import rmqstore, sys; rmqstore.open(sys.argv[1]).put('orders', b'kept')"
    subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "store")],
        env={**os.environ, "PYTHONPATH": str(tree.ROOT)},
        timeout=60,
        check=True,
    )
    with rmqstore.open(tmp_path / "store") as store:
        assert not store.recovery.was_closed
        assert store.get("orders", offset=0).body == b"kept"


def test_a_second_writer_is_refused_before_it_touches_anything(tmp_path: Path) -> None:
    with rmqstore.open(tmp_path / "store", **SIZES) as store:
        store.put("orders", b"first", durability=Durability.DISK)
        store.wait_dispatched()
        before = _contents(store.path)
        with pytest.raises(rmqstore.StoreLockedError) as caught:
            rmqstore.open(tmp_path / "store", **SIZES)
        assert caught.value.process_id == os.getpid()
        # The first writer itself may make the next log file and write the checkpoint meanwhile.
        after = _contents(store.path)
        assert {name: after.get(name) for name in before} == before
        assert store.put("orders", b"second").queue_offset == 1


def test_a_record_exactly_at_the_end_of_its_queue_is_dispatched_after_a_clean_stop(
    tmp_path: Path,
) -> None:
    with rmqstore.open(tmp_path / "store", **SIZES) as store:
        for number in range(5):
            store.put("orders", b"%d" % number)
    units = tmp_path / "store" / "consumequeue" / "orders" / "0" / f"{0:020}"
    with units.open("r+b") as file:
        file.seek(4 * 20)
        file.write(bytes(20))
    with rmqstore.open(tmp_path / "store") as store:
        assert [record.body for record in store.queue("orders")] == [b"0", b"1", b"2", b"3", b"4"]


def test_a_message_that_fits_no_log_file_is_refused_and_moves_nothing(tmp_path: Path) -> None:
    largest = 65536 - 8 - len("orders") - 91  # the blank, the topic, everything of fixed size
    with rmqstore.open(tmp_path / "store", **SIZES) as store:
        store.put("orders", b"first")
        end = store.end_offset
        for body_size in (largest + 1, 65536):
            with pytest.raises(rmqstore.MessageRejected, match="does not fit a commit log file"):
                store.put("orders", bytes(body_size))
        assert store.end_offset == end
        assert store.put("orders", bytes(largest)).physical_offset == 65536


def test_a_topic_of_few_characters_and_many_bytes_is_read_back(tmp_path: Path) -> None:
    topic = "é" * 100
    store = rmqstore.open(tmp_path / "store", **SIZES)
    store.put(topic, b"x")
    store.abandon()
    with rmqstore.open(tmp_path / "store") as store:
        record = store.get(topic, offset=0)
        assert (record.topic, record.version) == (topic, 2)


def test_nothing_unflushed_is_seen_where_acknowledgements_wait_for_the_disk(tmp_path: Path) -> None:
    never_ms = 1_000_000
    settings = {
        "flush_disk_type": FlushDiskType.SYNC_FLUSH,
        "flush_commit_log_interval_ms": never_ms,
        "flush_commit_log_thorough_interval_ms": never_ms,
    }
    with rmqstore.open(tmp_path / "store", **SIZES, **settings) as store:
        store.put("orders", b"seen")
        unflushed = store.put("orders", b"unseen", durability=Durability.MEMORY)
        assert store.queue("orders").end == unflushed.queue_offset
        assert store.confirm_offset == unflushed.physical_offset
        store.flush()
        assert store.queue("orders").end == unflushed.queue_offset + 1


def test_store_times_behind_ipv6_hosts_are_found(tmp_path: Path) -> None:
    host = ("2001:db8::17", 10911)
    with rmqstore.open(tmp_path / "store", **SIZES) as store:
        for number in range(10):
            set_clock(store, 1_700_000_000_000 + number * 1000)
            store.put(Message("orders", b"x", born_host=host, store_host=host))
        for number in range(10):
            assert store.queue("orders").offset_at(1_700_000_000_000 + number * 1000) == number


def test_index_files_span_fewer_log_files_than_java_walks_back_over(tmp_path: Path) -> None:
    settings = {**SIZES, "index_entry_count": 100_000}
    with rmqstore.open(tmp_path / "store", **settings) as store:
        for number in range(1500):
            store.put("orders", bytes(1000), keys=[f"k{number}"])
        store.wait_dispatched()
        assert len(store._files()) > 20
    spans = []
    for path in sorted((tmp_path / "store" / "index").iterdir()):
        begin, end = struct.unpack_from(">qq", path.read_bytes(), 16)
        spans.append(end // 65536 - begin // 65536 + 1)
    assert len(spans) > 2
    assert max(spans) <= 5


# ---- replication

QUICK = HaOptions(heartbeat_ms=100, reconnect_ms=50)
TWO = Quorum(in_sync=2, timeout_ms=50)
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Callable[[str], rmqstore.Store]]:
    """Return what opens, or opens again, the store of a name."""
    with ExitStack() as stack:
        yield lambda name: stack.enter_context(rmqstore.open(tmp_path / name, **SIZES))


def _outcome(put: Callable[[], object]) -> tuple[str, bool | None]:
    with pytest.raises(PutError) as caught:
        put()
    return caught.value.status, caught.value.stored


@pytest.mark.parametrize("name", ["README.md", "docs/replication.md"])
def test_python_about_replication_runs_in_its_order(name: str, tmp_path: Path) -> None:
    blocks = [each for each in PYTHON.findall(tree.text_of(name)) if "replication" in each]
    assert blocks
    answer = subprocess.run(
        [sys.executable, "-W", "error", "-c", "\n".join(blocks)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tree.ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr


@pytest.mark.parametrize(
    ("mode", "quorum", "copies", "outcome"),
    [
        (Mode.PLAIN, TWO, None, ("SLAVE_NOT_AVAILABLE", True)),
        # In plain mode nothing is refused for want of replicas, whatever min_in_sync says.
        (
            Mode.PLAIN,
            Quorum(in_sync=2, min_in_sync=2, timeout_ms=50),
            None,
            ("SLAVE_NOT_AVAILABLE", True),
        ),
        (Mode.ACTING_MASTER, TWO, None, ("IN_SYNC_REPLICAS_NOT_ENOUGH", False)),
        (Mode.ACTING_MASTER, Quorum(in_sync=2, auto_in_sync=True), None, None),
        (
            Mode.ACTING_MASTER,
            Quorum(in_sync=2, auto_in_sync=True),
            2,
            ("IN_SYNC_REPLICAS_NOT_ENOUGH", False),
        ),
        (Mode.SYNC_STATE_SET, TWO, None, ("FLUSH_SLAVE_TIMEOUT", True)),
        (
            Mode.SYNC_STATE_SET,
            Quorum(in_sync=2, min_in_sync=2),
            None,
            ("IN_SYNC_REPLICAS_NOT_ENOUGH", False),
        ),
    ],
)
def test_a_master_alone_answers_by_its_mode(
    mode: Mode,
    quorum: Quorum,
    copies: int | None,
    outcome: tuple[str, bool] | None,
    stores: Callable[[str], rmqstore.Store],
) -> None:
    store = stores("a")
    durability = None if copies else Durability.REPLICATED

    def put() -> rmqstore.Receipt:
        return store.put("orders", b"x", copies=copies, durability=durability)

    with Master(store, listen="127.0.0.1:0", mode=mode, quorum=quorum):
        assert store.put("orders", b"in memory").queue_offset == 0
        if outcome is None:
            assert put().copies == 1
        else:
            assert _outcome(put) == outcome


def test_without_a_master_replicated_is_refused_and_without_a_role_everything(
    stores: Callable[[str], rmqstore.Store],
) -> None:
    store = stores("a")
    refused = ("IN_SYNC_REPLICAS_NOT_ENOUGH", False)
    wanted = Durability.REPLICATED
    assert _outcome(lambda: store.put("orders", b"x", durability=wanted)) == refused
    store.put("orders", b"before")
    with ReplicatedStore(store):
        assert _outcome(lambda: store.put("orders", b"x")) == ("SERVICE_NOT_AVAILABLE", False)
    assert _outcome(lambda: store.put("orders", b"x")) == ("SERVICE_NOT_AVAILABLE", False)
    assert store.get("orders", offset=0).body == b"before"
    store.close()
    assert stores("a").put("orders", b"after").queue_offset == 1


def test_what_was_not_confirmed_stays_hidden_until_a_store_goes_on_alone(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with (
        rmqstore.open(path, **SIZES) as store,
        Master(store, listen="127.0.0.1:0", quorum=Quorum(in_sync=2)),
    ):
        store.put("orders", b"of the master alone")
    with rmqstore.open(path) as store:
        assert store.put("orders", b"more").queue_offset == 1
        assert store.queue("orders").end == 0
    with rmqstore.open(path, keep_confirm_offset=False) as store:
        assert [each.body for each in store.queue("orders")] == [b"of the master alone", b"more"]


def test_a_lease_is_not_held_before_it_is_renewed(stores: Callable[[str], rmqstore.Store]) -> None:
    store = stores("a")
    with Master(store, listen="127.0.0.1:0", lease=Lease(60_000)) as master:
        assert _outcome(lambda: store.put("orders", b"x")) == ("SERVICE_NOT_AVAILABLE", False)
        master.renew_lease(int(time.monotonic() * 1000))
        store.put("orders", b"x")
        # Answers may come out of order: an older renewal takes nothing back.
        master.renew_lease(int(time.monotonic() * 1000) - 120_000)
        store.put("orders", b"y")


def test_an_answered_proposal_makes_a_member(stores: Callable[[str], rmqstore.Store]) -> None:
    store = stores("a")
    with (
        Master(
            store, listen="127.0.0.1:0", broker_id=1, members=(1,), set_epoch=7, quorum=TWO
        ) as master,
        Slave(stores("b"), master=master.address or "", broker_id=2, options=QUICK),
    ):
        wait_until(master, lambda: master.proposals, "a proposal")
        (proposal,) = master.proposals
        assert (proposal.members, proposal.set_epoch) == ({1, 2}, 7)
        late, wanted = ("FLUSH_SLAVE_TIMEOUT", True), Durability.REPLICATED
        assert _outcome(lambda: store.put("orders", b"x", durability=wanted)) == late
        master.set_sync_state_set(proposal.members, 8)
        assert store.put("orders", b"x", durability=wanted, timeout=WAIT_S).copies == 2
        assert (master.sync_state_set, master.proposals) == ({1, 2}, ())


def test_readers_of_a_classic_slave_see_what_nobody_else_has(
    stores: Callable[[str], rmqstore.Store],
) -> None:
    for protocol, seen in (("classic", 1), ("autoswitch", 0)):
        store, other = stores(f"{protocol}-a"), stores(f"{protocol}-b")
        with (
            Master(
                store, listen="127.0.0.1:0", protocol=protocol, quorum=Quorum(in_sync=3)
            ) as master,
            Slave(other, master=master.address or "", protocol=protocol, options=QUICK) as slave,
        ):
            end = store.put("orders", b"x").end_offset
            slave.wait_caught_up(end, timeout=WAIT_S)
            if seen:
                slave.wait_confirmed(end, timeout=WAIT_S)
            assert (master.confirm_offset, slave.confirm_offset) == (0, end * seen)
            if seen:
                assert other.get("orders", offset=0).body == b"x"


def test_a_slave_that_lost_its_epoch_list_halts_and_goes_on_with_it(
    stores: Callable[[str], rmqstore.Store], tmp_path: Path
) -> None:
    one, two = stores("one"), stores("two")
    master = Master(one, listen="127.0.0.1:0", broker_id=1)
    former = Slave(two, master=master.address or "", broker_id=2, options=QUICK)

    end = one.put("orders", b"of both").end_offset
    former.wait_caught_up(end, timeout=WAIT_S)
    former.become_master(2)
    alone = two.put("orders", b"of one").end_offset
    two.close()

    list_of_two = tmp_path / "two" / "epochFileCheckpoint"
    shutil.copy(list_of_two, tmp_path / "kept")
    list_of_two.unlink()
    list_of_two.with_suffix(".bak").unlink()

    master.become_master(9)
    two = stores("two")
    with Slave(two, master=master.address or "", broker_id=2, options=QUICK) as slave:
        wait_until(slave, lambda: slave.status().master.halted_reason, "a halt")
        assert slave.status().master.state is HaState.SUSPEND
        assert two.end_offset == alone
        assert two.get("orders", offset=0).body == b"of both"

    two.close()
    shutil.copy(tmp_path / "kept", list_of_two)
    two = stores("two")
    with Slave(two, master=master.address or "", broker_id=2, options=QUICK) as slave:
        slave.wait_caught_up(end, timeout=WAIT_S)
        assert (two.end_offset, slave.epochs) == (end, master.epochs)

    master.close()


@pytest.mark.parametrize("has_put", [False, True])
def test_a_master_whose_directory_was_emptied_halts_its_slave(
    has_put: bool, stores: Callable[[str], rmqstore.Store]
) -> None:
    two = stores("two")
    with (
        Master(stores("one"), listen="127.0.0.1:0", quorum=TWO) as master,
        Slave(two, master=master.address or "", options=QUICK) as slave,
    ):
        receipt = master.store.put("orders", b"paid", copies=2, timeout=WAIT_S)
        slave.wait_confirmed(receipt.end_offset, timeout=WAIT_S)
    with Master(stores("emptied"), listen="127.0.0.1:0") as master:
        assert master.epoch == 1
        if has_put:
            master.store.put("orders", b"lost")
        with Slave(two, master=master.address or "", options=QUICK) as slave:
            wait_until(slave, lambda: slave.status().master.halted_reason, "a halt")
            assert two.get("orders", offset=0).body == b"paid"


@pytest.mark.parametrize(
    ("epochs", "said"), [((2, 9), "that master was replaced"), ((9, 2), "no epoch in common")]
)
def test_a_slave_of_another_log_does_not_follow_and_goes_on_trying(
    epochs: tuple[int, int], said: str, stores: Callable[[str], rmqstore.Store]
) -> None:
    store, other = stores("a"), stores("b")
    with Master(other, listen="127.0.0.1:0", epoch=epochs[1]):
        end = other.put("orders", b"mine").end_offset
    with Master(store, listen="127.0.0.1:0", epoch=epochs[0]) as master:
        store.put("orders", b"another one")
        with Slave(other, master=master.address or "", options=QUICK) as slave:
            wait_until(slave, lambda: said in slave.status().master.last_error, said)
            assert slave.status().master.halted_reason is None
            assert (other.start_offset, other.end_offset) == (0, end)


def test_more_connections_than_are_allowed_and_bytes_that_are_no_frame_are_closed(
    stores: Callable[[str], rmqstore.Store],
) -> None:
    with Master(stores("a"), listen="127.0.0.1:0", connections_max=1) as master:
        assert master.address is not None
        with socket.create_connection(master.address, WAIT_S) as first:
            wait_until(master, lambda: master.replicas, "a connection")
            with socket.create_connection(master.address, WAIT_S) as second:
                assert second.recv(1) == b""
            first.sendall(b"GET / HTTP/1.0\r\n\r\n")
            assert first.recv(1) == b""
            wait_until(master, lambda: not master.replicas, "its end")


def _contents(root: str) -> dict[str, bytes]:
    files = (path for path in Path(root).rglob("*") if path.is_file())
    return {str(path): path.read_bytes() for path in files if path.name != "checkpoint"}
