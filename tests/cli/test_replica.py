"""`replica`: each side as a process of its own, as an operator runs it."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, Self, cast

import pytest

import rmqstore
from rmqstore.cli.replica import _take_proposals
from rmqstore.cli.traffic import body_of
from rmqstore.replication import Proposal, ReplicatedStore
from tests.cli.conftest import Run

TIMEOUT_S = 60.0
"""Longer than any load makes a side take to start, or a put to be copied."""
LISTEN = ("--listen", "127.0.0.1:0")


class Side:
    """A running command, and the lines of JSON that it prints."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.lines: list[dict[str, Any]] = []
        self._news = threading.Condition()
        self._is_over = False
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()

    def until(self, is_so: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Return the first line that *is_so*, of those there are and those to come."""

        def found() -> dict[str, Any] | None:
            return next((line for line in self.lines if is_so(line)), None)

        with self._news:
            self._news.wait_for(lambda: found() is not None or self._is_over, TIMEOUT_S)
            line = found()
        assert line is not None, (self.lines[-1:], self._is_over and self.err())
        return line

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send a signal and return the exit code."""
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        """Return the exit code."""
        code = self.process.wait(TIMEOUT_S)
        self._reader.join()
        return code

    def err(self) -> str:
        assert self.process.stderr is not None
        return self.process.stderr.read().decode()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._news:
                self.lines.append(json.loads(line))
                self._news.notify_all()
        with self._news:
            self._is_over = True
            self._news.notify_all()


Start = Callable[..., Side]


@pytest.fixture
def start(spawn: Callable[..., subprocess.Popen[bytes]]) -> Iterator[Start]:
    """Return a function that starts a side; all are gone when the test is."""
    sides: list[Side] = []

    def begin(role: str, *arguments: object) -> Side:
        shared = ("--json", "--interval", 0.1, "--heartbeat-ms", 200)
        patience = ("--timeout-ms", int(TIMEOUT_S * 1000)) if role == "master" else ()
        sides.append(Side(spawn("replica", role, *arguments, *shared, *patience)))
        return sides[-1]

    yield begin
    for side in sides:
        with side:
            pass


def address_of(master: Side) -> str:
    return str(master.until(lambda line: line["address"] is not None)["address"])


def holds(line: dict[str, Any], end: int) -> bool:
    """Whether a slave has all up to a physical offset, and knows that others do."""
    offsets = (line["endOffset"], line["confirmOffset"], line["master"]["lagBytes"])
    return offsets == (end, end, 0)


def bodies_in(root: Path, topic: str = "traffic") -> list[bytes]:
    with rmqstore.open(root, read_only=True) as store:
        return [record.body for record in store.queue(topic).records()]


@pytest.mark.parametrize("protocol", ["autoswitch", "classic"])
def test_a_slave_gets_all_that_its_master_puts_and_both_end_cleanly(
    protocol: str, tmp_path: Path, start: Start, run: Run
) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    with rmqstore.open(a) as store:
        store.put_many([b"before"] * 10, topic="traffic")
    master = start(
        "master", a, *LISTEN, "--protocol", protocol, "--put", 1000, "--size", 300, "--in-sync", 2
    )
    slave = start("slave", b, "--master", address_of(master), "--protocol", protocol)
    done = master.until(lambda line: line["put"]["acknowledged"] == 1000)
    assert (done["role"], done["inSync"], done["put"]["late"]) == ("master", 2, 0)
    told = slave.until(lambda line: holds(line, done["endOffset"]))
    assert (told["role"], told["master"]["state"]) == ("slave", "TRANSFER")
    assert slave.end(signal.SIGINT) == 0
    assert master.end(signal.SIGTERM) == 0
    assert (master.err(), slave.err()) == ("", "")
    assert bodies_in(b)[10:] == [body_of(number, size_bytes=300) for number in range(1000)]
    assert run("diff", a, b).code == 0
    for root in (a, b):
        assert run("verify", root, "--full").code == 0
    if protocol == "autoswitch":
        assert [run("epoch", root).code for root in (a, b)] == [0, 0]


def test_once_ends_each_side_when_all_is_copied(tmp_path: Path, start: Start, run: Run) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    master = start("master", a, *LISTEN, "--put", 500, "--in-sync", 2, "--once")
    slave = start("slave", b, "--master", address_of(master))
    assert master.wait() == 0
    assert master.lines[-1]["put"]["acknowledged"] == 500
    slave.until(lambda line: line["endOffset"] == master.lines[-1]["endOffset"])
    assert slave.end() == 0
    assert run("diff", "--common", a, b).code == 0


def test_a_slave_that_is_told_to_ends_when_it_has_caught_up(tmp_path: Path, start: Start) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    with rmqstore.open(a) as store:
        store.put_many([b"x" * 1000] * 1000, topic="t")
        end = store.end_offset
    master = start("master", a, *LISTEN)
    slave = start("slave", b, "--master", address_of(master), "--once")
    assert slave.wait() == 0
    assert slave.lines[-1]["endOffset"] == end
    assert master.end() == 0


def test_status_shows_set_learner_and_lag(tmp_path: Path, start: Start) -> None:
    master = start(
        "master", tmp_path / "a", *LISTEN, "--broker-id", 1, "--epoch", 7, "--members", "1,2",
        "--set-epoch", 40, "--all-ack", "--put", 100, "--allow", "127.0.0.0/8",
    )  # fmt: skip
    address = address_of(master)
    slave = start("slave", tmp_path / "b", "--master", address, "--broker-id", 2)
    learner = start("slave", tmp_path / "c", "--master", address, "--broker-id", 3, "--learner")
    done = master.until(
        lambda line: (
            line["put"]["acknowledged"] == 100
            and {each["ackOffset"] for each in line["replicas"]} == {line["endOffset"]}
            and len(line["replicas"]) == 2
        )
    )
    assert (done["brokerId"], done["epoch"]) == (1, 7)
    assert (done["syncStateSet"], done["syncStateSetEpoch"]) == ([1, 2], 40)
    assert done["confirmOffset"] == done["endOffset"] > 0
    shown = {
        each["brokerId"]: (each["state"], each["isLearner"], each["isCounted"], each["lagBytes"])
        for each in done["replicas"]
    }
    assert shown == {2: ("TRANSFER", False, True, 0), 3: ("TRANSFER", True, False, 0)}
    for side in (slave, learner, master):
        assert side.end() == 0


def test_a_replica_that_joins_is_proposed_and_taken_where_nobody_keeps_the_set(
    tmp_path: Path, start: Start
) -> None:
    master = start(
        "master", tmp_path / "a", *LISTEN, "--broker-id", 1, "--members", 1, "--take-proposals",
    )  # fmt: skip
    start("slave", tmp_path / "b", "--master", address_of(master), "--broker-id", 2)
    joined = master.until(lambda line: line["syncStateSet"] == [1, 2])
    assert joined["syncStateSetEpoch"] == 1
    assert master.end() == 0


def test_of_several_proposals_the_last_is_taken_and_voids_the_others() -> None:
    """Two sets of one version are refused, and would end the command."""

    class Wishing:
        proposals = (
            Proposal(1, frozenset((1, 2)), 4, joined=frozenset((2,)), left=frozenset()),
            Proposal(2, frozenset((1,)), 4, joined=frozenset(), left=frozenset()),
        )
        taken: ClassVar[list[tuple[set[int], int]]] = []

        def set_sync_state_set(self, members: frozenset[int], set_epoch: int) -> None:
            self.taken.append((set(members), set_epoch))

    _take_proposals(cast(ReplicatedStore, Wishing()))
    assert Wishing.taken == [({1}, 5)]


def test_a_master_that_was_replaced_is_truncated_when_it_comes_back_as_slave(
    tmp_path: Path, start: Start, run: Run
) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    master = start("master", a, *LISTEN, "--put", 300, "--in-sync", 2, "--once")
    slave = start("slave", b, "--master", address_of(master))
    assert master.wait() == 0
    shared = master.lines[-1]["endOffset"]
    slave.until(lambda line: line["endOffset"] == shared)
    assert slave.end() == 0
    # Without a role it stores what nobody else gets.
    with rmqstore.open(a) as store:
        store.put_many([b"alone"] * 50, topic="traffic")
        assert store.end_offset > shared

    second = start(
        "master", b, *LISTEN, "--epoch", 2, "--put", 20, "--in-sync", 2, "--topic", "second"
    )
    back = start("slave", a, "--master", address_of(second), "--epoch", 2)
    done = second.until(lambda line: line["put"]["acknowledged"] == 20)
    assert done["epoch"] == 2
    back.until(lambda line: holds(line, done["endOffset"]))
    assert back.end() == 0
    assert second.end() == 0
    assert len(bodies_in(a)) == 300
    assert len(bodies_in(a, "second")) == 20
    told = run("diff", a, b, "--json")
    assert (told.code, told.json[-1]["epochsPartAt"]) == (0, done["endOffset"])


def test_logs_that_no_epoch_joins_halt_the_slave_with_4_and_stay_as_they_are(
    tmp_path: Path, start: Start, run: Run
) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    for root in (a, b):
        with rmqstore.open(root) as store:
            store.put_many([root.name.encode() * 100] * 50, topic="t")
    master = start("master", a, *LISTEN, "--protocol", "classic")
    slave = start("slave", b, "--master", address_of(master), "--protocol", "classic")
    assert slave.wait() == 4
    assert slave.lines[-1]["master"]["halted"]
    (line,) = slave.err().splitlines()
    assert line.startswith("rmqstore: ")
    assert "rmqstore diff" in line
    assert bodies_in(b, "t") == [b"b" * 100] * 50
    assert master.end() == 0


def test_nothing_changes_nothing_is_printed(tmp_path: Path, start: Start) -> None:
    with rmqstore.open(tmp_path / "a") as store:
        store.put("t", b"x")
    master = start("master", tmp_path / "a", *LISTEN)
    slave = start("slave", tmp_path / "b", "--master", address_of(master), "--once")
    assert slave.wait() == 0
    assert master.end() == 0
    states = [{**line, "timestamp": 0, "bytesPerSecond": 0} for line in master.lines[:-1]]
    assert all(before != after for before, after in pairwise(states))


@pytest.mark.parametrize(
    "arguments",
    [
        ("--members", "1,two"),
        ("--in-sync", 3, "--total", 2),
        ("--allow", "nowhere"),
        ("--epoch", -1),
        ("--batch-bytes", 1 << 30),
    ],
)
def test_wrong_options_exit_with_2(arguments: tuple[object, ...], tmp_path: Path, run: Run) -> None:
    told = run("replica", "master", tmp_path / "a", *LISTEN, *arguments)
    assert told.code == 2
    assert told.err


def test_a_port_that_is_taken_is_named(tmp_path: Path, run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        told = run("replica", "master", tmp_path / "a", "--listen", address)
    assert told.code == 2
    assert address in told.err


def test_a_master_that_was_killed_starts_again_with_an_epoch_and_the_word_of_its_caller(
    tmp_path: Path, start: Start, run: Run
) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    master = start("master", a, *LISTEN, "--put", 50, "--in-sync", 2)
    slave = start("slave", b, "--master", address_of(master))
    master.until(lambda line: line["put"]["acknowledged"] == 50)
    master.end(signal.SIGKILL)
    again = ("replica", "master", a, *LISTEN, "--once")
    for more in ((), ("--epoch", 2), ("--others-asked",)):
        told = run(*again, *more)
        assert told.code == 2
        assert "--epoch 2 --others-asked" in told.err
    told = run(*again, "--epoch", 2_000_000, "--others-asked")
    assert (told.code, "--allow-epoch-jump" in told.err) == (2, True)
    assert run(*again, "--epoch", 2, "--others-asked").code == 0
    # It ended cleanly now.
    assert run(*again).code == 0
    assert slave.end() == 0
    assert len(bodies_in(a)) == 50


def test_an_epoch_that_is_over_is_refused(tmp_path: Path, run: Run) -> None:
    for epoch, code in ((5, 0), (4, 4)):
        told = run("replica", "master", tmp_path / "a", *LISTEN, "--epoch", epoch, "--once")
        assert told.code == code
    assert "epoch 4 is over" in told.err


def test_a_store_in_use_exits_with_3(small: Path, run: Run) -> None:
    with rmqstore.open(small):
        told = run("replica", "slave", small, "--master", "127.0.0.1:1")
    assert told.code == 3
    assert "open in this process already" in told.err
