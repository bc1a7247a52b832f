"""What real replicas said to each other, replayed over sockets: to the byte, in both directions.

The recording plays one side, a store with the recorded log the other. Heartbeats come by the clock,
which a recording does not hold: those that tell nothing new are left out on both sides.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from rmqstore.epochs import EpochEntry, format_epochs, parse_epochs
from rmqstore.replication import HaOptions, ReplicatedStore, Slave
from rmqstore.replication.protocol.frames import (
    Ack,
    ClassicData,
    Frame,
    Handshake,
    HandshakeReply,
    Report,
    Transfer,
    encode,
)
from tests.golden.rewriting import config_of
from tests.golden.wire import NAMES, Stream, streams, unpack
from tests.scenarios.replay import FILE_SIZE, RecordedLog, essence, frames_of, once
from tests.service.wire import HOST, FalseMaster, Protocol, calling, listening
from tests.support.log_files import log_bytes
from tests.support.waiting import wait_until

BATCH_BYTES = {
    "default-cut": 1000,
    "default-small-batches": 512,
    "switch-cut": 1000,
    "switch-epochs": 700,
}
CONFIRM_BY_CHANCE = ("switch-all-ack", "switch-basic")
"""Cases whose confirm offset moved while frames were on their way: what they tell depends on it."""
SETTINGS = {"mappedFileSizeCommitLog": FILE_SIZE, "mappedFileSizeConsumeQueue": 20_000}
SILENT_MS = 60_000


@dataclass(frozen=True, slots=True)
class Conversation:
    """One recorded connection."""

    case: Path
    wire: str
    slave: Sequence[Frame]
    master: Sequence[Frame]

    @property
    def protocol(self) -> Protocol:
        return "autoswitch" if self.case.name.startswith("switch-") else "classic"

    @property
    def master_log(self) -> tuple[int, bytes]:
        name = {"wire-1": "a-before-truncation", "wire-2": "b"}.get(self.wire, "master")
        return log_of(self.case / name)


def conversations(name: str, into: Path) -> list[Conversation]:
    case = unpack(name, into)
    found: dict[tuple[str, int], dict[str, Stream]] = {}
    for stream in streams(name):
        both = found.setdefault((stream.wire, stream.connection), {})
        both[stream.speaker.split()[1]] = stream
    return [
        Conversation(case, wire, frames_of(both["slave"]), frames_of(both["master"]))
        for (wire, _), both in found.items()
    ]


def log_of(root: Path) -> tuple[int, bytes]:
    """Return where a recorded log begins, and its bytes with those behind its end."""
    files = sorted((root / "commitlog").iterdir())
    assert all(file.stat().st_size == FILE_SIZE for file in files)
    return int(files[0].name), b"".join(file.read_bytes() for file in files)


def store_with(root: Path, start: int, log: bytes, epochs: Sequence[EpochEntry]) -> rmqstore.Store:
    """Return an open store that holds *log* from *start* on."""
    root.mkdir()
    if epochs:
        (root / "epochFileCheckpoint").write_text(format_epochs(epochs))
    store = rmqstore.open(root, config_of(SETTINGS, root, compatibility="auto"))
    if log:
        store.append_raw(start, log)
    return store


def news(frames: Sequence[Frame], name: str) -> list[Frame]:
    """Return *frames* without heartbeats that tell no new epoch."""
    if name in CONFIRM_BY_CHANCE or name.startswith("default-"):
        return essence(frames)
    epoch, found = -1, list[Frame]()
    for frame in frames:
        if isinstance(frame, Transfer) and frame.offset >= 0:
            if not frame.body and frame.epoch == epoch:
                continue
            epoch = frame.epoch
        if not isinstance(frame, Transfer) or frame.offset >= 0:
            found.append(frame)
    return found


def to_bytes(frames: Sequence[Frame]) -> bytes:
    return b"".join(map(encode, frames))


@pytest.mark.parametrize("name", NAMES)
def test_master_says_the_bytes_that_a_java_master_said(name: str, tmp_path: Path) -> None:
    for number, talk in enumerate(conversations(name, tmp_path)):
        batch_bytes = BATCH_BYTES.get(name, 32768)
        recorded = RecordedLog(talk.master, batch_bytes=batch_bytes)
        start, log = talk.master_log
        hello = talk.slave[0]
        options = HaOptions(batch_bytes=batch_bytes, heartbeat_ms=SILENT_MS, overlap_bytes=0)
        # The last epoch begins with taking office; the bytes that were written in it follow.
        last = recorded.epochs[-1] if recorded.epochs else EpochEntry(1, recorded.visible_end)
        with (
            store_with(
                tmp_path / f"store-{number}",
                start,
                log[: max(last.start_offset - start, 0)],
                recorded.epochs[:-1],
            ) as store,
            ReplicatedStore(
                store,
                broker_id=hello.broker_id + 1 if isinstance(hello, Handshake) else 1,
                listen=(HOST, 0),
                protocol=talk.protocol,
                options=options,
                is_gated=False,
            ) as replica,
        ):
            replica.become_master(last.epoch)
            at = max(store.end_offset, start)
            store.append_raw(at, log[at - start : recorded.visible_end - start])
            heard = listen_to_master(talk, recorded, replica, start, log)
        said = news(talk.master, name)
        if name == "switch-epochs-eager":
            # The only difference: the first epoch is announced, which Java's slave then missed.
            reply = said[0]
            assert isinstance(reply, HandshakeReply)
            said.insert(1, Transfer(0, 1, 0, reply.end_offset))
        assert to_bytes(news(heard, name)[: len(said)]) == to_bytes(said)


def listen_to_master(
    talk: Conversation, recorded: RecordedLog, replica: ReplicatedStore, start: int, log: bytes
) -> list[Frame]:
    """Play the recorded slave, let the master's log grow as it did, and return what was heard."""
    store = replica.store

    def grow() -> None:
        end = recorded.ends.pop(0)
        if end > store.end_offset:
            at = store.end_offset
            store.append_raw(at, log[at - start : end - start])

    with calling(replica, talk.protocol) as slave:
        is_begun = False
        for word in talk.slave:
            if isinstance(word, Report | Ack):
                while recorded.ends and word.offset > store.end_offset:
                    grow()
                if not is_begun and recorded.ends:
                    grow()
                if word.offset > store.end_offset:
                    # RocketMQ's master says nothing but heartbeats to a slave that is ahead.
                    slave.say(word)
                    slave.hear_end()
                    break
                # It acknowledges what it has got, so that must have come.
                if is_begun and word.offset:
                    slave.hear(reaches(word.offset), f"{word.offset}")
                is_begun = True
            slave.say(word)
            if isinstance(word, Handshake):
                slave.hear(lambda heard: bool(heard), "the reply")
        while recorded.ends:
            grow()
        if is_begun and essence(talk.master):
            enough = len(essence(talk.master))
            slave.hear(lambda heard: len(essence(heard)) >= enough, "all that was recorded")
        return slave.heard


def reaches(offset: int) -> Callable[[list[Frame]], bool]:
    return lambda heard: any(
        isinstance(each, ClassicData | Transfer) and each.offset + len(each.body) >= offset
        for each in heard
    )


@pytest.mark.parametrize("name", [name for name in NAMES if name != "default-forked"])
def test_slave_says_the_bytes_that_a_java_slave_said(name: str, tmp_path: Path) -> None:
    talks = conversations(name, tmp_path)
    # The one that is cut off inside of a record goes on there when it connects again.
    lives = [talks] if name == "default-cut" else [[talk] for talk in talks]
    for number, life in enumerate(lives):
        start, log, epochs = slave_before(life[0])
        with (
            store_with(tmp_path / f"store-{number}", start, log, epochs) as store,
            listening(life[0].protocol) as master,
        ):
            for talk, heard in zip(life, listen_to_slave(life, master, store), strict=True):
                said = once([offering(each) for each in talk.slave])
                assert to_bytes(once(heard)[: len(said)]) == to_bytes(said)
                assert_holds(store, talk)
            if name == "switch-no-common-point":
                assert log_bytes(Path(store.path), start, store.end_offset) == log


def offering(frame: Frame) -> Frame:
    """Return what a slave of ours says in the place of *frame*: its handshake offers checks, which
    Java's master takes for the 0 that was there."""
    return replace(frame, offers_checks=True) if isinstance(frame, Handshake) else frame


def assert_holds(store: rmqstore.Store, talk: Conversation) -> None:
    """Hold what a slave stored against what its master sent."""
    for each in talk.master:
        if isinstance(each, ClassicData | Transfer) and each.body:
            end = each.offset + len(each.body)
            assert log_bytes(Path(store.path), each.offset, end) == each.body


def slave_before(talk: Conversation) -> tuple[int, bytes, Sequence[EpochEntry]]:
    """Return start, bytes and epochs of the slave's log as they were before a conversation."""
    verdict = json.loads((talk.case / "case.json").read_text())["verdict"]
    forked = {"wire-2": "a-before-truncation"}.get(talk.wire, "slave")
    is_unlike = talk.wire == "wire-2" or talk.case.name == "switch-no-common-point"

    if is_unlike:
        start, log = log_of(talk.case / forked)
        end = verdict["oldMasterEnd" if talk.wire == "wire-2" else "slaveMax"]
        text = (talk.case / forked / "epochFileCheckpoint").read_text()
        return start, log[: end - start], parse_epochs(text)

    first = next((each.offset for each in talk.slave if isinstance(each, Report | Ack)), 0)
    if not first:
        return 0, b"", ()

    start, log = log_of(talk.case / "slave")
    reply = talk.master[0]
    known = reply.entries if isinstance(reply, HandshakeReply) else ()
    epochs = [each for each in known if each.start_offset < first]
    return start, log[: first - start], epochs


def listen_to_slave(
    life: Sequence[Conversation], master: FalseMaster, store: rmqstore.Store
) -> Iterator[list[Frame]]:
    """Play the recorded master, each frame once the one before is acknowledged; yield what was
    heard on each connection."""
    hello = life[0].slave[0]

    flags: dict[str, Any] = {}
    if isinstance(hello, Handshake):
        flags = {
            "broker_id": hello.broker_id,
            "is_learner": hello.is_learner,
            "sync_from_last_file": hello.sync_from_last_file,
        }

    options = HaOptions(
        heartbeat_ms=SILENT_MS,
        reconnect_ms=SILENT_MS if len(life) == 1 else 10,
        overlap_bytes=0,
        ack_parts=True,
    )

    with Slave(store, master=master.address, protocol=life[0].protocol, options=options, **flags):
        for talk in life:
            peer = master.accept()
            peer.hear(lambda heard: bool(heard), "its first word")
            for frame in talk.master:
                peer.say(frame)
                if isinstance(frame, HandshakeReply) and talk.case.name.endswith("common-point"):
                    peer.hear_end()
                elif isinstance(frame, HandshakeReply):
                    peer.hear(acknowledges(0), "where it begins")
                elif isinstance(frame, ClassicData | Transfer) and frame.body:
                    peer.hear(acknowledges(frame.offset + len(frame.body)), f"{frame.offset}")
            peer.close()
            yield peer.heard


def acknowledges(offset: int) -> Callable[[list[Frame]], bool]:
    return lambda heard: any(
        isinstance(each, Report | Ack) and each.offset >= offset for each in heard
    )


def test_slave_that_forked_appends_nothing_to_its_log_where_javas_spoilt_it(
    tmp_path: Path,
) -> None:
    (talk,) = conversations("default-forked", tmp_path)
    start, log, epochs = slave_before(talk)
    with (
        store_with(tmp_path / "store", start, log, epochs) as store,
        listening("classic") as master,
        Slave(store, master=master.address, protocol="classic", options=HaOptions()) as slave,
    ):
        for _ in range(2):
            peer = master.accept()
            peer.hear(lambda heard: bool(heard), "its first word")
            asked = peer.heard[0]
            assert isinstance(asked, Report)
            first, bytes_of_master = talk.master_log
            peer.say(ClassicData(asked.offset, bytes_of_master[asked.offset - first :][:2000]))
            peer.hear_end()
        wait_until(slave, lambda: slave.master_status.halted_reason is not None, "a halt")
        assert log_bytes(Path(store.path), start, store.end_offset) == log
