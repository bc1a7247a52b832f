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
from rmqstore.measure.traffic import body_of
from rmqstore.replication import Proposal, ReplicatedStore
from rmqstore.replication.watch import accept_last_proposal
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
    answer = slave.until(lambda line: holds(line, done["endOffset"]))
    assert (answer["role"], answer["master"]["state"]) == ("slave", "TRANSFER")

    assert slave.end(signal.SIGINT if protocol == "classic" else signal.SIGHUP) == 0
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
            and {each["brokerId"]: each["isCounted"] for each in line["replicas"]}
            == {2: True, 3: False}
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

    accept_last_proposal(cast(ReplicatedStore, Wishing()))
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
    answer = run("diff", a, b, "--json")
    assert (answer.code, answer.json[-1]["epochsPartAt"]) == (0, done["endOffset"])


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
    answer = run("replica", "master", tmp_path / "a", *LISTEN, *arguments)
    assert answer.code == 2
    assert answer.err


# -- the configuration of a broker

BROKER_FILE = """
brokerName = broker-a
haListenPort = 0
inSyncReplicas = 2
haSendHeartbeatInterval = 200
mappedFileSizeCommitLog = 1048576
maxHashSlotNum = 1000
maxIndexNum = 4000
"""


def test_the_quorum_of_a_broker_file_is_waited_for(tmp_path: Path, start: Start) -> None:
    file = tmp_path / "broker.conf"
    file.write_text(BROKER_FILE)

    master = start("master", tmp_path / "a", "--config", file, "--put", 3, "--size", 10)
    address = address_of(master)
    assert address.startswith("127.0.0.1:")

    file_of_slave = tmp_path / "slave.conf"
    file_of_slave.write_text(f"{BROKER_FILE}haMasterAddress={address}\nasyncLearner=true\n")
    slave = start("slave", tmp_path / "b", "--config", file_of_slave, "--no-learner")

    done = master.until(lambda line: line["put"]["acknowledged"] == 3)
    assert [(each["isLearner"], each["isCounted"]) for each in done["replicas"]] == [(False, True)]
    assert not [
        line for line in master.lines if line["put"]["acknowledged"] and not line["replicas"]
    ]

    assert slave.end() == 0
    assert master.end() == 0
    assert "1 key of the configuration has no effect here: brokerName" in master.err()


def test_flags_win_over_a_broker_file(tmp_path: Path, run: Run) -> None:
    file = tmp_path / "broker.conf"
    file.write_text(BROKER_FILE)
    answer = run(
        "replica", "master", tmp_path / "a", "--config", file, "--in-sync", 1, "--put", 3,
        "--once", "--json",
    )  # fmt: skip
    assert answer.code == 0
    assert answer.json[-1]["put"]["acknowledged"] == 3


def test_all_mistakes_of_a_broker_file_exit_with_2_and_make_nothing(
    tmp_path: Path, run: Run
) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("inSyncReplicas=0\nhaListenPort=ten\nslaveTimeot=1\n")
    answer = run("replica", "master", tmp_path / "a", "--config", file)
    assert answer.code == 2
    assert f"3 configuration mistakes in {file}" in answer.err
    for key in ("inSyncReplicas", "haListenPort", "slaveTimeot"):
        assert f"{key}" in answer.err
    assert not (tmp_path / "a").exists()


def test_a_slave_without_a_master_is_refused(tmp_path: Path, run: Run) -> None:
    answer = run("replica", "slave", tmp_path / "a")
    assert answer.code == 2
    assert "give --master, or --config with haMasterAddress" in " ".join(answer.err.split())
    assert not (tmp_path / "a").exists()


def test_a_port_that_is_taken_is_named(tmp_path: Path, run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        answer = run("replica", "master", tmp_path / "a", "--listen", address)
    assert answer.code == 2
    assert address in answer.err


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
        answer = run(*again, *more)
        assert answer.code == 2
        assert "--epoch 2 --others-asked" in answer.err

    answer = run(*again, "--epoch", 2_000_000, "--others-asked")
    assert (answer.code, "--allow-epoch-jump" in answer.err) == (2, True)
    assert run(*again, "--epoch", 2, "--others-asked").code == 0

    # It ended cleanly now.
    assert run(*again).code == 0
    assert slave.end() == 0
    assert len(bodies_in(a)) == 50


def test_an_epoch_that_is_over_is_refused(tmp_path: Path, run: Run) -> None:
    for epoch, code in ((5, 0), (4, 4)):
        answer = run("replica", "master", tmp_path / "a", *LISTEN, "--epoch", epoch, "--once")
        assert answer.code == code
    assert "epoch 4 is over" in answer.err


def test_a_store_in_use_exits_with_3(small: Path, run: Run) -> None:
    with rmqstore.open(small):
        answer = run("replica", "slave", small, "--master", "127.0.0.1:1")
    assert answer.code == 3
    assert "open in this process already" in answer.err
