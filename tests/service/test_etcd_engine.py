"""The engine over etcd: its log, its leadership and what it reports."""

from __future__ import annotations

import asyncio
import base64
import errno
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmqstore.config import ControllerConfig
from rmqstore.controller.engines.engine import Leadership, Outcome
from rmqstore.controller.engines.etcd import COMMAND_BYTES_MAX, EtcdEngine
from rmqstore.controller.engines.etcd_gateway import Gateway
from rmqstore.controller.server import Controller
from rmqstore.errors import ArgumentError, CorruptionError, DiskError, StoreTimeout
from tests.support.engine_history import History, commit
from tests.support.etcd_cluster import EtcdCluster, needs_etcd
from tests.support.etcd_room import give_room
from tests.support.relay import Relay
from tests.support.waiting import until

pytestmark = needs_etcd
COMPACTION = 20
LEASE_S = 20
"""Longer than a loaded machine holds a process up; who closes gives up its lease at once."""


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdCluster]:
    with EtcdCluster(tmp_path_factory.mktemp("etcd")) as cluster:
        yield cluster


@pytest.fixture
def prefix(request: pytest.FixtureRequest) -> str:
    return f"test/{request.node.name}"


class Node:
    """An engine with its history."""

    def __init__(
        self, endpoints: list[str], prefix: str, node_id: str = "n0", *, lease_s: int = LEASE_S
    ) -> None:
        self.engine = EtcdEngine(
            endpoints,
            prefix=prefix,
            node_id=node_id,
            lease_seconds=lease_s,
            snapshot_entries=COMPACTION,
        )
        self.history = History()
        self.seen: list[Leadership] = []
        self.engine.watch(self.seen.append)

    async def start(self, *, leads: bool = True) -> None:
        await self.history.start(self.engine)
        if leads:
            await until(self.leads, "the node leads")

    def leads(self) -> bool:
        return self.engine.leadership().is_leader

    async def close(self) -> None:
        await self.engine.close()


async def read_keys(etcd: EtcdCluster, prefix: str) -> dict[str, bytes]:
    """Return all keys of a prefix, without it."""
    gateway = Gateway(etcd.endpoints)
    first, end = (base64.b64encode(each.encode()).decode() for each in (prefix, prefix + "~"))
    answer = await gateway.call("/v3/kv/range", {"key": first, "range_end": end}, timeout=30)
    await gateway.close()
    found: list[dict[str, Any]] = answer.body.get("kvs", [])
    return {
        base64.b64decode(each["key"]).decode().removeprefix(prefix + "/"): base64.b64decode(
            each.get("value", "")
        )
        for each in found
    }


async def put_key(etcd: EtcdCluster, key: str, value: bytes) -> None:
    gateway = Gateway(etcd.endpoints)
    body = {
        "key": base64.b64encode(key.encode()).decode(),
        "value": base64.b64encode(value).decode(),
    }
    await gateway.call("/v3/kv/put", body, timeout=30)
    await gateway.close()


def test_followers_apply_every_command_once_and_in_order(etcd: EtcdCluster, prefix: str) -> None:
    async def work() -> None:
        first, second = (Node(etcd.endpoints, prefix, name) for name in ("n0", "n1"))
        await first.start()
        await second.start(leads=False)
        wanted = [str(each) for each in range(50)]
        places = await asyncio.gather(*(commit(first.engine, each) for each in wanted))
        assert places == list(range(1, 51))
        await until(lambda: len(second.history.commands) == 50, "the follower has all")
        assert second.history.commands == first.history.commands == wanted
        assert second.engine.leadership().leader_id == "n0"
        assert await second.engine.propose(b"x", timeout=30) == (Outcome.NOT_LEADER, None)
        assert await second.engine.read_barrier(timeout=30) is None
        assert await first.engine.read_barrier(timeout=30) == first.history.last_index
        await first.close()
        await until(second.leads, "the follower leads")
        assert second.engine.leadership().term > first.seen[-1].term
        await commit(second.engine, "last")
        assert second.history.commands == [*wanted, "last"]
        await second.close()

    asyncio.run(work())


def test_log_is_cut_behind_a_snapshot_and_a_late_node_takes_the_state(
    etcd: EtcdCluster, prefix: str
) -> None:
    async def work() -> None:
        node = Node(etcd.endpoints, prefix)
        await node.start()
        wanted = [str(each) for each in range(3 * COMPACTION)]
        for each in wanted:
            await commit(node.engine, each)
        keys = await read_keys(etcd, prefix)
        assert sum(key.startswith("log/") for key in keys) < 2 * COMPACTION
        assert len({key for key in keys if key.startswith("state/")}) == 1
        late = Node(etcd.endpoints, prefix, "n1")
        await late.start(leads=False)
        assert late.history.commands == wanted
        await late.close()
        await node.close()

    asyncio.run(work())


def test_node_that_was_held_up_takes_the_state_in_mid_life(etcd: EtcdCluster, prefix: str) -> None:
    relay = Relay(etcd.members[0].clients.address)

    async def work() -> None:
        node = Node(etcd.endpoints, prefix)
        await node.start()
        slow = Node([f"http://127.0.0.1:{relay.address[1]}"], prefix, "n1")
        await slow.start(leads=False)
        await commit(node.engine, "first")
        await until(lambda: slow.history.commands == ["first"], "the follower has one")
        relay.cut()
        for each in range(3 * COMPACTION):
            await commit(node.engine, str(each))
        relay.mend()
        await until(lambda: len(slow.history.commands) == 3 * COMPACTION + 1, "it has all")
        assert slow.history.commands == node.history.commands
        await slow.close()
        await node.close()

    try:
        asyncio.run(work())
    finally:
        relay.close()


def test_command_whose_answers_are_lost_is_written_once(etcd: EtcdCluster, prefix: str) -> None:
    swallowed = 0
    is_deaf = False

    def change(is_from_target: bool) -> Any:
        def pass_on(data: bytes) -> bytes:
            nonlocal swallowed, is_deaf
            if is_deaf and is_from_target and b"succeeded" in data:
                swallowed += 1
                is_deaf = False
                relay.drop()
                return b""
            return data

        return pass_on

    relay = Relay(etcd.members[0].clients.address, change)

    async def work() -> None:
        nonlocal is_deaf
        node = Node([f"http://127.0.0.1:{relay.address[1]}"], prefix)
        await node.start()
        for each in range(20):
            is_deaf = True
            await commit(node.engine, str(each))
        assert node.history.commands == [str(each) for each in range(20)]
        late = Node(etcd.endpoints, prefix, "n1")
        await late.start(leads=False)
        assert late.history.commands == node.history.commands
        await late.close()
        await node.close()

    try:
        asyncio.run(work())
    finally:
        relay.close()
    assert swallowed >= 10


def test_command_that_etcd_writes_and_refuses_as_too_much_is_committed(
    etcd: EtcdCluster, prefix: str
) -> None:
    message = "etcdserver: mvcc: database space exceeded"
    body = json.dumps({"error": message, "message": message, "code": 8}).encode()
    head = f"HTTP/1.1 429 Too Many Requests\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    refused = 0
    refuses = False

    def change(is_from_target: bool) -> Any:
        def pass_on(data: bytes) -> bytes:
            nonlocal refused, refuses
            if refuses and is_from_target and b"response_put" in data:
                refused += 1
                refuses = False
                return head + body
            return data

        return pass_on

    relay = Relay(etcd.members[0].clients.address, change)

    async def work() -> None:
        nonlocal refuses
        node = Node([f"http://127.0.0.1:{relay.address[1]}"], prefix)
        await node.start()
        for each in range(5):
            refuses = True
            await commit(node.engine, str(each))
        assert node.history.commands == [str(each) for each in range(5)]
        await node.close()

    try:
        asyncio.run(work())
    finally:
        relay.close()
    assert refused >= 1


def test_leader_without_etcd_steps_down_and_another_leads(etcd: EtcdCluster, prefix: str) -> None:
    relay = Relay(etcd.members[0].clients.address)

    async def work() -> None:
        former = Node([f"http://127.0.0.1:{relay.address[1]}"], prefix, lease_s=4)
        await former.start()
        await commit(former.engine, "a")
        other = Node(etcd.endpoints, prefix, "n1")
        await other.start(leads=False)
        relay.cut()
        outcome, _ = await former.engine.propose(b"b", timeout=60)
        assert outcome in (Outcome.UNKNOWN, Outcome.NOT_LEADER)
        await until(lambda: not former.seen[-1].is_leader, "the leader steps down")
        assert not former.leads()
        await until(other.leads, "the other leads")
        await commit(other.engine, "c")
        relay.mend()
        await until(lambda: former.history.commands == other.history.commands, "it catches up")
        assert former.history.commands[0] == "a"
        assert former.history.commands[-1] == "c"
        await former.close()
        await other.close()

    try:
        asyncio.run(work())
    finally:
        relay.close()


def test_deposed_leader_commits_nothing_and_passes_no_barrier(
    etcd: EtcdCluster, prefix: str
) -> None:
    async def work() -> None:
        node = Node(etcd.endpoints, prefix)
        await node.start()
        await commit(node.engine, "a")
        # What a leader finds that slept through its lease: the key of another.
        gateway = Gateway(etcd.endpoints)
        key = base64.b64encode(f"{prefix}/leader".encode()).decode()
        await gateway.call("/v3/kv/deleterange", {"key": key}, timeout=30)
        await put_key(etcd, f"{prefix}/leader", b"x" * 16 + b"n9")
        assert await node.engine.read_barrier(timeout=30) is None
        assert await node.engine.propose(b"b", timeout=30) == (Outcome.NOT_LEADER, None)
        await until(lambda: node.engine.leadership().leader_id == "n9", "it knows the leader")
        await gateway.call("/v3/kv/deleterange", {"key": key}, timeout=30)
        await until(node.leads, "it leads again")
        await commit(node.engine, "c")
        assert node.history.commands == ["a", "c"]
        await gateway.close()
        await node.close()

    asyncio.run(work())


@pytest.mark.parametrize("fault", ["gap", "no entry", "shorter", "state", "value"])
def test_log_that_no_controller_wrote_ends_the_engine(
    fault: str, etcd: EtcdCluster, prefix: str
) -> None:
    async def work() -> None:
        node = Node(etcd.endpoints, prefix)
        await node.start()
        for each in range(COMPACTION + 5):
            await commit(node.engine, str(each))
        last = node.history.last_index
        await node.close()
        gateway = Gateway(etcd.endpoints)
        state = next(k for k in await read_keys(etcd, prefix) if k.startswith("state/"))
        key = {
            "gap": f"log/{last + 5:020d}",
            "no entry": "log/x",
            "state": state,
            "value": f"log/{last:020d}",
        }.get(fault)
        if key is None:
            span = {
                "key": base64.b64encode(f"{prefix}/log/".encode()).decode(),
                "range_end": base64.b64encode(f"{prefix}/log0".encode()).decode(),
            }
            await gateway.call("/v3/kv/deleterange", span, timeout=30)
        else:
            await put_key(etcd, f"{prefix}/{key}", b"?")
        await gateway.close()
        late = Node(etcd.endpoints, prefix)
        with pytest.raises(CorruptionError, match="restore etcd from a backup"):
            await late.start(leads=False)

    asyncio.run(work())


def test_failure_of_apply_ends_the_engine_and_another_node_leads(
    etcd: EtcdCluster, prefix: str
) -> None:
    async def work() -> None:
        def apply(index: int, term: int, command: bytes) -> bytes:
            raise ValueError("a fault")

        engine = EtcdEngine(etcd.endpoints, prefix=prefix, lease_seconds=LEASE_S)
        await engine.start(apply, lambda: b"", lambda _: None)
        await until(lambda: engine.leadership().is_leader, "it leads")
        assert await engine.propose(b"a", timeout=30) == (Outcome.UNKNOWN, None)
        await until(lambda: engine.failure is not None, "it has failed")
        assert "a fault" in str(engine.failure)
        assert not engine.leadership().is_leader
        other = Node(etcd.endpoints, prefix, "n1")
        await other.start()
        assert other.history.commands == ["a"]
        await other.close()
        await engine.close()

    asyncio.run(work())


def test_state_larger_than_a_request_of_etcd_is_kept_in_parts(
    etcd: EtcdCluster, prefix: str
) -> None:
    states: list[bytes] = []

    async def work() -> None:
        large = bytes(range(256)) * 10_000
        engine = EtcdEngine(
            etcd.endpoints, prefix=prefix, lease_seconds=LEASE_S, snapshot_entries=5
        )
        await engine.start(lambda *_: b"", lambda: large, states.append)
        await until(lambda: engine.leadership().is_leader, "it leads")
        for _ in range(12):
            assert (await engine.propose(b"x", timeout=30))[0] is Outcome.COMMITTED
        await engine.close()
        late = EtcdEngine(etcd.endpoints, prefix=prefix, lease_seconds=LEASE_S)
        await late.start(lambda *_: b"", lambda: b"", states.append)
        await late.close()
        assert states == [large]

    asyncio.run(work())


def test_full_etcd_refuses_commands_and_takes_them_again_when_there_is_room(
    tmp_path: Path, prefix: str
) -> None:
    held: list[bytes] = []
    refusals: list[DiskError] = []

    def apply(index: int, term: int, command: bytes) -> bytes:
        held.append(command[:4])
        return b""

    async def fill(engine: EtcdEngine) -> int:
        """Commit until etcd is full; return how many were committed."""
        for number in range(60):
            command = f"{number:04}".encode() * 64_000
            try:
                outcome, _ = await engine.propose(command, timeout=30)
            except DiskError as error:
                refusals.append(error)
                return number
            assert outcome is Outcome.COMMITTED
        pytest.fail("etcd has room for everything")

    async def work(etcd: EtcdCluster) -> None:
        engine = EtcdEngine(
            etcd.endpoints, prefix=prefix, lease_seconds=60, snapshot_entries=COMPACTION // 2
        )
        await engine.start(apply, lambda: b"", lambda _: None)
        await until(lambda: engine.leadership().is_leader, "it leads")
        count = await fill(engine)
        assert refusals[0].errno == errno.ENOSPC
        assert "disarm its alarm" in str(refusals[0])
        assert engine.leadership().is_leader
        await give_room(etcd.endpoints)
        assert (await engine.propose(b"last", timeout=30))[0] is Outcome.COMMITTED
        assert held == [*(f"{number:04}".encode() for number in range(count)), b"last"]
        await engine.close()

    quota = {"quota-backend-bytes": str(8 * 1024 * 1024)}
    with EtcdCluster(tmp_path, options=quota) as etcd:
        asyncio.run(work(etcd))


def test_command_above_the_limit_is_refused(etcd: EtcdCluster, prefix: str) -> None:
    async def work() -> None:
        node = Node(etcd.endpoints, prefix)
        await node.start()
        with pytest.raises(ArgumentError, match="takes up to"):
            await node.engine.propose(b"x" * (COMMAND_BYTES_MAX + 1), timeout=30)
        outcome, _ = await node.engine.propose(b"x" * COMMAND_BYTES_MAX, timeout=30)
        assert outcome is Outcome.COMMITTED
        await node.close()

    asyncio.run(work())


def test_start_without_etcd_is_refused_with_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmqstore.controller.engines.etcd._READ_S", 0.3)
    relay = Relay()

    async def work() -> None:
        engine = EtcdEngine([f"http://127.0.0.1:{relay.address[1]}"])
        with pytest.raises(StoreTimeout, match=str(relay.address[1])):
            await engine.start(lambda *_: b"", lambda: b"", lambda _: None)

    try:
        asyncio.run(work())
    finally:
        relay.close()


def test_controllers_with_one_etcd_have_one_leader_whose_place_all_tell(
    etcd: EtcdCluster, prefix: str
) -> None:
    async def work() -> None:
        peers = "n0-127.0.0.1:0;n1-127.0.0.1:0"
        first, second = (
            Controller(
                ControllerConfig(
                    bind_address="127.0.0.1",
                    peers=peers,
                    self_id=name,
                    etcd_endpoints=tuple(etcd.endpoints),
                    etcd_prefix=prefix,
                    etcd_lease_seconds=LEASE_S,
                )
            )
            for name in ("n0", "n1")
        )
        async with first:
            await until(lambda: first.status().is_leader, "the first leads")
            async with second:
                told = second.metadata()
                assert (told["controllerLeaderId"], told["isLeader"]) == ("n0", "false")
                await first.close()
                await until(lambda: second.status().is_leader, "the second leads")
                assert second.metadata()["controllerLeaderId"] == "n1"

    asyncio.run(work())
