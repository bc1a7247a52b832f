"""Auto-switch HA, both sides: what real replicas said, and random histories of a group.

docs/protocols.md; RocketMQ's AutoSwitchHAConnection and AutoSwitchHAClient.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqstore.epochs import EpochList
from rmqstore.replication.group.epoch_state import known_epoch
from rmqstore.replication.protocol.autoswitch_master import AutoSwitchMaster
from rmqstore.replication.protocol.autoswitch_slave import AutoSwitchSlave
from rmqstore.replication.protocol.events import (
    Acked,
    Append,
    Close,
    Closed,
    Effect,
    Event,
    FlushLog,
    FrameReceived,
    HaOptions,
    HaState,
    LogGrew,
    Opened,
    Ordered,
    Receive,
    ReceiveEnded,
    Restart,
    SaveEpochs,
    SaveEpochState,
    Send,
    SendLog,
    Tick,
    Writable,
)
from rmqstore.replication.protocol.frames import (
    Ack,
    Frame,
    Handshake,
    HandshakeReply,
    Transfer,
    handshake_crc,
)
from tests.golden.wire import NAMES
from tests.scenarios.ha_model import Died, ModelLog, entries
from tests.scenarios.pairs import LIKE_JAVA, OPTIONS, switch_pair
from tests.scenarios.replay import conversations, essence, once, play_master, play_slave
from tests.support.effort import rounds

CASES = [name for name in NAMES if name.startswith("switch-")]
BATCH_BYTES = {"switch-cut": 1000, "switch-epochs": 700}
HELLO = Handshake(sync_from_last_file=False, is_learner=False, broker_id=2)


@pytest.mark.parametrize("name", CASES)
def test_slave_says_what_a_java_slave_said(name: str) -> None:
    for slave, master in conversations(name):
        sent, _ = play_slave(slave, master)
        assert once(sent)[: len(once(slave))] == once(slave)


@pytest.mark.parametrize("name", CASES)
def test_master_says_what_a_java_master_said(name: str) -> None:
    for slave, master in conversations(name):
        said = essence(master)
        if name == "switch-epochs-eager":
            # The only difference: the first epoch is announced, which Java's slave then missed.
            said.insert(1, Transfer(0, 1, 0, 0))
        sent, _ = play_master(master, slave, batch_bytes=BATCH_BYTES.get(name, 32768))
        assert essence(sent)[: len(said)] == said


@pytest.mark.parametrize("name", ["switch-epochs", "switch-epochs-eager", "switch-fork-epochs"])
def test_slave_learns_every_epoch_of_a_java_master(name: str) -> None:
    slave, master = conversations(name)[-1]
    _, log = play_slave(slave, master)
    reply = master[0]
    assert isinstance(reply, HandshakeReply)
    assert log.epochs == reply.entries


def labels(log: ModelLog, start: int, options: HaOptions = LIKE_JAVA) -> list[str]:
    master = AutoSwitchMaster(log, broker_id=1, options=options)
    master.on(Opened(), 0)
    master.on(FrameReceived(HELLO), 0)
    found = []
    for effect in master.on(FrameReceived(Ack(start)), 0):
        if isinstance(effect, SendLog):
            header = effect.header
            assert isinstance(header, Transfer)
            found.append(f"{effect.offset}+{effect.size} {header.epoch}@{header.epoch_start}")
        elif isinstance(effect, Send) and isinstance(effect.frame, Transfer):
            frame = effect.frame
            found.append(f"{frame.offset}+0 {frame.epoch}@{frame.epoch_start}")
    return found


def test_batch_that_reaches_an_epochs_end_is_cut_and_labelled_with_the_next() -> None:
    log = ModelLog().begin(1).put("abc").begin(2).put("d")
    options = replace(LIKE_JAVA, batch_bytes=200)
    assert labels(log, 100, options) == ["100+0 1@0", "100+200 2@300", "300+100 2@300"]
    assert labels(log, 50, options)[2:4] == ["250+50 2@300", "300+100 2@300"]


def test_epochs_that_wrote_nothing_are_not_announced() -> None:
    log = ModelLog().begin(1).put("abc").begin(2).begin(3).begin(4).put("d")
    assert labels(log, 100) == ["100+0 1@0", "100+200 4@300", "300+100 4@300"]


def test_slave_that_wants_the_last_file_begins_there() -> None:
    log = ModelLog().begin(1).put("abcdefghijkl")
    master = AutoSwitchMaster(log, broker_id=1, options=OPTIONS)
    master.on(Opened(), 0)
    master.on(FrameReceived(replace(HELLO, sync_from_last_file=True)), 0)
    master.on(FrameReceived(Ack(0)), 0)
    assert master.next_offset == 1200
    assert master.on(FrameReceived(Ack(1200)), 0) != []


def test_learner_is_acknowledged_and_never_caught_up() -> None:
    log = ModelLog().begin(1).put("a")
    master = AutoSwitchMaster(log, broker_id=1, options=OPTIONS)
    master.on(Opened(), 0)
    answer = master.on(FrameReceived(replace(HELLO, is_learner=True)), 0)
    assert "is_learner=True" in repr(answer[0])
    master.on(FrameReceived(Ack(0)), 0)
    assert [type(each).__name__ for each in master.on(FrameReceived(Ack(100)), 0)] == ["Acked"]


def test_slave_closes_when_its_handshake_stays_unanswered() -> None:
    slave = AutoSwitchSlave(ModelLog(), broker_id=2, options=OPTIONS)
    assert slave.on(Opened(), 0) == [Send(HELLO)]
    assert slave.next_tick_ms() == 5001
    assert slave.on(Tick(), 5000) == []
    assert "did not answer" in repr(slave.on(Tick(), 5001))
    assert slave.state is HaState.READY


def test_confirm_offset_rises_with_the_log_and_never_goes_back() -> None:
    log = ModelLog()
    slave = AutoSwitchSlave(log, broker_id=2, options=OPTIONS)
    slave.on(Opened(), 0)

    frames: list[Frame] = [HandshakeReply(500, 1, entries((1, 0)))]
    frames += [
        Transfer(0, 1, 0, 400, b"a" * 300),
        Transfer(300, 1, 0, 250),
        Transfer(300, 1, 0, -1),
    ]

    seen = []
    for frame in frames:
        for event in (FrameReceived(frame), LogGrew()):
            for effect in slave.on(event, 0):
                log.carry_out(effect)
        seen.append(log.confirm_offset)

    assert seen == [0, 300, 300, 300]


def test_slave_acknowledges_nothing_together_with_the_flush_it_asks_for() -> None:
    """The flush may end much later, on another thread."""
    log = ModelLog().begin(1)
    log.flushes_at_once = False
    slave = AutoSwitchSlave(log, broker_id=2, options=replace(OPTIONS, ack_flushed=True))
    slave.on(Opened(), 0)
    slave.on(FrameReceived(HandshakeReply(300, 1, entries((1, 0)))), 0)
    log.carry_out(Append(0, b"a" * 300))
    slave.on(FrameReceived(Transfer(0, 1, 0, -1, b"a" * 300)), 0)
    assert slave.on(LogGrew(), 0) == [FlushLog()]
    log.flushed_offset = 300
    assert slave.on(LogGrew(), 0) == [Send(Ack(300))]


def test_slave_says_where_to_begin_once_that_is_on_the_disk() -> None:
    log = ModelLog().begin(1).put("ab")
    log.flushes_at_once, log.flushed_offset = False, 50
    slave = AutoSwitchSlave(log, broker_id=2, options=replace(OPTIONS, ack_flushed=True))
    slave.on(Opened(), 0)
    reply = FrameReceived(HandshakeReply(300, 1, entries((1, 0))))
    assert not [each for each in slave.on(reply, 0) if isinstance(each, Send)]
    log.flushed_offset = 200
    assert [each for each in slave.on(LogGrew(), 0) if isinstance(each, Send)] == [Send(Ack(100))]


def ordered_slave(log: ModelLog, *, epoch: int, options: HaOptions) -> AutoSwitchSlave:
    """Return a slave that was ordered to its master in *epoch*, and knows no later one."""
    log.carry_out(SaveEpochState(log.epoch_state.learn(epoch)))
    slave = AutoSwitchSlave(log, broker_id=2, options=options)
    slave.ordered_epoch = epoch
    slave.on(Opened(), 0)
    return slave


def test_slave_follows_a_java_master_that_does_not_list_the_ordered_epoch() -> None:
    slave = ordered_slave(ModelLog().begin(1).put("a"), epoch=3, options=LIKE_JAVA)
    slave.on(FrameReceived(HandshakeReply(300, 1, entries((1, 0)))), 0)
    assert slave.state is HaState.TRANSFER
    assert slave.on(Ordered(3), 0) == []


@pytest.mark.parametrize("case", ["ours is later", "without an order", "order of another epoch"])
def test_slave_follows_no_java_master_of_an_epoch_that_may_be_over(case: str) -> None:
    log = ModelLog().begin(1).put("a")
    if case == "ours is later":
        log.begin(2).put("b")
    slave = ordered_slave(log, epoch=3, options=LIKE_JAVA)
    if case == "without an order":
        slave.ordered_epoch = -1
    elif case == "order of another epoch":
        slave.ordered_epoch = 2
    effects = slave.on(FrameReceived(HandshakeReply(300, 1, entries((1, 0)))), 0)
    assert "has not begun its epoch yet" in repr(effects)
    assert slave.state is not HaState.TRANSFER


def test_slave_follows_no_master_of_ours_that_does_not_list_the_ordered_epoch() -> None:
    slave = ordered_slave(ModelLog().begin(1).put("a"), epoch=3, options=CHECKED)
    [hello] = slave.on(Opened(), 0)
    assert isinstance(hello, Send)
    assert isinstance(hello.frame, Handshake)
    crc = handshake_crc(hello.frame)
    reply = HandshakeReply(300, 1, entries((1, 0)), handshake_crc=crc)
    assert "has not begun its epoch yet" in repr(slave.on(FrameReceived(reply), 0))


def test_slave_takes_no_label_between_those_of_the_master() -> None:
    log = ModelLog().begin(1).put("a")
    slave = AutoSwitchSlave(log, broker_id=2, options=LIKE_JAVA)
    slave.on(Opened(), 0)
    slave.on(FrameReceived(HandshakeReply(300, 3, entries((1, 0), (3, 100)))), 0)
    effects = slave.on(FrameReceived(Transfer(100, 2, 100, -1, b"b" * 100)), 0)
    assert [type(each) for each in effects] == [Close]


def test_confirm_offset_of_one_connection_says_nothing_about_the_next() -> None:
    log = ModelLog().begin(1).put("aa")
    slave = AutoSwitchSlave(log, broker_id=2, options=OPTIONS)
    for end, confirm_offset in ((300, 400), (400, 200)):
        slave.on(Opened(), 0)
        start = log.end_offset
        for frame in (
            HandshakeReply(400, 1, entries((1, 0))),
            Transfer(start - 100, 1, 0, confirm_offset, b"a" * (end - start + 100)),
        ):
            for event in (FrameReceived(frame), LogGrew()):
                for effect in slave.on(event, 0):
                    log.carry_out(effect)
        slave.on(Closed(), 0)
    assert (log.end_offset, log.confirm_offset) == (400, 300)


# ---- random histories


def copy_of(log: ModelLog) -> ModelLog:
    made = ModelLog(start=log.start_offset, file_size=log.file_size)
    made.data, made.borders, made.epochs = log.data, set(log.borders), log.epochs
    made.confirm_offset, made.flushed_offset = log.confirm_offset, log.flushed_offset
    return made


@st.composite
def histories(draw: st.DrawFn) -> tuple[ModelLog, ModelLog]:
    """Return a master and another replica after a few terms of office.

    A new master takes office with whatever it has, in a later epoch; others follow it for a while,
    the way this protocol lets them, and get a part of what it writes.
    """
    logs = [ModelLog(file_size=700) for _ in range(3)]
    letters = iter("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
    leader = 0
    for epoch in range(1, draw(st.integers(2, 6))):
        leader = draw(st.integers(0, 2))
        log = logs[leader]
        log.epochs = EpochList(tuple(log.epochs)).begin(epoch, log_end=log.end_offset).entries
        for _ in range(draw(st.integers(0, 3))):
            log.put(next(letters), size=draw(st.integers(1, 3)) * 50)
            follower = draw(st.integers(0, 5))
            if follower < 3 and follower != leader:
                follow(log, logs[follower])
    other = (leader + draw(st.integers(1, 2))) % 3
    return logs[leader], logs[other]


def follow(master: ModelLog, slave: ModelLog, options: HaOptions = LIKE_JAVA) -> list[str]:
    """Let *slave* follow until nothing is left to do; return what happened."""
    play = switch_pair(master, slave, options)
    for _ in range(12):
        play.connect()
        if slave.data == master.data[slave.start_offset - master.start_offset :]:
            break
    return play.lines


@settings(max_examples=rounds(150, 20000), deadline=None)
@given(histories(), st.sampled_from([LIKE_JAVA, OPTIONS]), st.sampled_from([40, 170, 32768]))
def test_any_replica_ends_with_its_masters_log_and_epochs(
    logs: tuple[ModelLog, ModelLog], options: HaOptions, batch_bytes: int
) -> None:
    master, slave = logs
    if slave.end_offset and not slave.epochs:
        return
    if not set(slave.epochs) & set(master.epochs) and slave.end_offset:
        before = slave.answer()
        follow(master, slave, replace(options, batch_bytes=batch_bytes))
        assert slave.answer() == before or slave.data == master.data
        return
    lines = follow(master, slave, replace(options, batch_bytes=batch_bytes))
    assert slave.data == master.data, "\n".join(lines)
    ends = [*(each.start_offset for each in master.epochs[1:]), master.end_offset]
    wrote = {each for each, end in zip(master.epochs, ends, strict=True) if each.start_offset < end}
    assert wrote <= set(slave.epochs)


class DyingLog(ModelLog):
    """Dies before one of the effects that change it."""

    dies_at = 0

    def carry_out(self, effect: Effect) -> str | None:
        if self.dies_at == 0:
            raise Died
        self.dies_at -= 1
        return super().carry_out(effect)


def die_and_follow(
    master: ModelLog, slave: ModelLog, deaths: list[int], options: HaOptions
) -> None:
    """Let *slave* follow, and die before the effect of each number in turn; then let it follow to
    the end."""
    options = replace(options, batch_bytes=120)
    for dies_at in deaths:
        dying = DyingLog(file_size=slave.file_size)
        dying.__dict__.update(slave.__dict__)
        dying.dies_at = dies_at
        try:
            switch_pair(master, dying, options).connect()
        except Died:
            pass
        slave = copy_of(dying)
        slave.epochs = EpochList(tuple(slave.epochs)).restored(log_end=slave.end_offset).entries
    if slave.end_offset and not slave.epochs:
        return
    follow(master, slave, options)
    assert slave.data == master.data


@settings(max_examples=rounds(150, 20000), deadline=None)
@given(histories(), st.lists(st.integers(0, 6), max_size=4), st.sampled_from([LIKE_JAVA, OPTIONS]))
def test_slave_that_dies_between_any_two_effects_ends_with_its_masters_log(
    logs: tuple[ModelLog, ModelLog], deaths: list[int], options: HaOptions
) -> None:
    master, slave = logs
    if slave.end_offset and not set(slave.epochs) & set(master.epochs):
        return
    die_and_follow(master, slave, deaths, options)


@pytest.mark.parametrize("options", [LIKE_JAVA, OPTIONS], ids=["like java", "with checks"])
@pytest.mark.parametrize("dies_at", range(7))
def test_slave_that_dies_at_the_first_batch_of_an_empty_log_lays_it_to_no_older_epoch(
    dies_at: int, options: HaOptions
) -> None:
    # The slave was master of an epoch in which nothing was written.
    master = ModelLog().begin(2).put("a").begin(3).put("b")
    die_and_follow(master, ModelLog().begin(1), [dies_at], options)


@settings(max_examples=rounds(150, 20000), deadline=None)
@given(histories(), st.sampled_from([LIKE_JAVA, OPTIONS]))
def test_nothing_is_counted_that_the_slave_does_not_hold(
    logs: tuple[ModelLog, ModelLog], options: HaOptions
) -> None:
    master, slave = logs
    play = switch_pair(master, slave, replace(options, batch_bytes=90))
    for _ in range(6):
        play.connect()
        assert play.master is not None
        acked = max(play.master.acked_offset, 0)
        assert slave.end_offset >= acked
        if acked:
            assert slave.data[:acked] == master.data[:acked]


def test_java_slave_that_is_back_where_an_epoch_begins_hears_its_label_anew() -> None:
    log = ModelLog().begin(1).put("abc").begin(2).put("d")
    heard: set[int] = set()
    answer = []

    for _ in range(2):
        master = AutoSwitchMaster(log, broker_id=1, options=OPTIONS, heard=heard)
        master.on(Opened(), 0)
        master.on(FrameReceived(HELLO), 0)

        sent = master.on(FrameReceived(Ack(300)), 0)
        frames = [each.frame for each in sent if isinstance(each, Send)]
        answer.append([each.epoch for each in frames if isinstance(each, Transfer)])
        assert master.acked_epoch == -1

        master.on(FrameReceived(Ack(300)), 1)
        assert master.acked_epoch == -1
        master.on(FrameReceived(Ack(400)), 2)
        assert master.acked_epoch == 2

    assert answer == [[2], [1, 2]]


def test_slave_that_begins_behind_the_start_of_the_epoch_has_stored_it() -> None:
    log = ModelLog().begin(1).put("abc").begin(2).put("d")
    master = AutoSwitchMaster(log, broker_id=1, options=OPTIONS)
    master.on(Opened(), 0)
    master.on(FrameReceived(HELLO), 0)
    master.on(FrameReceived(Ack(400)), 0)
    master.on(FrameReceived(Ack(400)), 1)
    assert (master.acked_offset, master.acked_epoch) == (400, 2)


def test_last_bytes_of_an_epoch_prove_the_label_that_they_carry() -> None:
    log = ModelLog().begin(1).put("abc").begin(2)
    master = AutoSwitchMaster(log, broker_id=1, options=OPTIONS)
    master.on(Opened(), 0)
    master.on(FrameReceived(HELLO), 0)
    master.on(FrameReceived(Ack(200)), 0)
    master.on(Writable(), 0)
    master.on(FrameReceived(Ack(200)), 1)
    assert master.acked_epoch == -1
    master.on(FrameReceived(Ack(300)), 1)
    assert master.acked_epoch == 2


CHECKED = replace(OPTIONS, checks=True)


def shaken(slave: AutoSwitchSlave) -> Handshake:
    (sent,) = slave.on(Opened(), 0)
    assert isinstance(sent, Send)
    assert isinstance(sent.frame, Handshake)
    return sent.frame


def test_slave_offers_checks_and_takes_an_answer_without_them() -> None:
    log = ModelLog().begin(1).put("a")
    slave = AutoSwitchSlave(log, broker_id=2, options=CHECKED)
    assert shaken(slave) == replace(HELLO, offers_checks=True)
    answer = slave.on(FrameReceived(HandshakeReply(100, 1, entries((1, 0)))), 0)
    assert [each.frame for each in answer if isinstance(each, Send)][-1].epoch is None  # type: ignore[union-attr]


def test_learner_that_holds_nothing_and_wants_the_last_file_has_no_room_to_offer() -> None:
    wishes = {"broker_id": 2, "options": CHECKED, "is_learner": True, "sync_from_last_file": True}
    empty = shaken(AutoSwitchSlave(ModelLog(), **wishes))  # type: ignore[arg-type]
    assert (empty.sync_from_last_file, empty.offers_checks) == (True, False)
    holds = shaken(AutoSwitchSlave(ModelLog().begin(1).put("a"), **wishes))  # type: ignore[arg-type]
    assert (holds.sync_from_last_file, holds.offers_checks) == (False, True)


@pytest.mark.parametrize("learns", [True, False])
def test_slave_that_begins_with_the_last_file_keeps_so_and_counts_no_more(*, learns: bool) -> None:
    log = ModelLog()
    slave = AutoSwitchSlave(
        log, broker_id=2, options=OPTIONS, sync_from_last_file=True, learns_while_partial=learns
    )

    def handle(event: Event) -> list[Effect]:
        effects = slave.on(event, 0)
        for effect in effects:
            log.carry_out(effect)
        return effects

    assert not shaken(slave).is_learner
    handle(FrameReceived(HandshakeReply(700, 3, entries((3, 0)))))
    effects = handle(FrameReceived(Transfer(600, 3, 0, 600, b"a" * 100)))
    # A death in between leaves no whole log that began late.
    kinds = [type(each) for each in effects]
    assert kinds.index(SaveEpochState) < kinds.index(Restart)
    assert log.epoch_state.is_partial(log.start_offset)
    assert known_epoch(log) == 3
    after = handle(LogGrew())
    assert any(isinstance(each, Close) for each in after) is learns
    assert any(isinstance(each, Send) for each in after) is not learns

    if learns:
        hello = shaken(slave)
        assert (hello.is_learner, hello.sync_from_last_file) == (True, False)
        handle(FrameReceived(HandshakeReply(700, 3, entries((3, 0)))))
        assert not any(isinstance(each, Close) for each in handle(Tick()))
        log.put("b").trim(700)
        assert any(isinstance(each, Close) for each in handle(Tick()))
        assert not shaken(slave).is_learner


def test_after_offers_that_end_the_connection_one_is_made_without() -> None:
    slave = AutoSwitchSlave(ModelLog(), broker_id=2, options=CHECKED)
    offers = []
    for _ in range(8):
        offers.append(shaken(slave).offers_checks)
        slave.on(Closed(), 0)
    assert offers == [True, True, True, False, True, True, True, False]


def test_slave_closes_when_the_master_heard_another_handshake_or_drops_the_checks() -> None:
    log = ModelLog().begin(1).put("a")
    slave = AutoSwitchSlave(log, broker_id=2, options=CHECKED)
    said = shaken(slave)
    reply = HandshakeReply(100, 1, entries((1, 0)), handshake_crc(replace(said, broker_id=3)))
    (close,) = slave.on(FrameReceived(reply), 0)
    assert isinstance(close, Close)
    assert "another handshake" in close.reason
    shaken(slave)
    slave.on(FrameReceived(replace(reply, handshake_crc=handshake_crc(said))), 0)
    (close,) = slave.on(FrameReceived(Transfer(100, 1, 0, 0)), 0)
    assert isinstance(close, Close)
    assert "checks are missing" in close.reason


def test_master_takes_acknowledgements_as_it_answered() -> None:
    log = ModelLog().begin(1).put("a")
    for options, ack in ((CHECKED, Ack(100)), (OPTIONS, Ack(100, 1))):
        master = AutoSwitchMaster(log, broker_id=1, options=options)
        master.on(Opened(), 0)
        master.on(FrameReceived(replace(HELLO, offers_checks=True)), 0)
        (close,) = master.on(FrameReceived(ack), 0)
        assert isinstance(close, Close)
    master = AutoSwitchMaster(log, broker_id=1, options=CHECKED)
    master.on(Opened(), 0)
    master.on(FrameReceived(replace(HELLO, offers_checks=True)), 0)
    master.on(FrameReceived(Ack(100, -1)), 0)
    assert Acked(2, 100, 1) in master.on(FrameReceived(Ack(100, 1)), 0)
    (close,) = master.on(FrameReceived(Ack(100, 2)), 0)
    assert isinstance(close, Close)


def test_slave_names_what_it_has_stored_once_it_has() -> None:
    log = ModelLog().begin(1).put("a")
    slave = AutoSwitchSlave(log, broker_id=2, options=replace(CHECKED, overlap_bytes=0))
    said = shaken(slave)
    reply = HandshakeReply(100, 1, entries((1, 0)), handshake_crc(said))
    assert Send(Ack(100, -1)) in slave.on(FrameReceived(reply), 0)
    assert Send(Ack(100, 1)) in slave.on(LogGrew(), 0)
    answer = slave.on(FrameReceived(Transfer(100, 3, 100, 0, is_checked=True)), 0)
    saved = answer.index(SaveEpochs(entries((1, 0), (3, 100))))
    assert answer[saved + 1] == Send(Ack(100, 3))


def test_slave_acknowledges_what_a_pump_received_last_and_handed_back() -> None:
    log = ModelLog().begin(1).put("abc")
    options = replace(OPTIONS, streams=True, overlap_bytes=0)
    slave = AutoSwitchSlave(log, broker_id=2, options=options)
    slave.on(Opened(), 0)
    slave.on(FrameReceived(HandshakeReply(300, 1, log.epochs)), 0)
    assert slave.is_receiving
    log.put("d")
    ended = ReceiveEnded(next_offset=400, acked_offset=300, heard_ms=1, wrote_ms=0)
    assert Send(Ack(400)) in slave.on(ended, 1)


def test_frame_withdraws_the_request_to_receive_until_it_is_stored() -> None:
    log = ModelLog().begin(1).put("abc")
    slave = AutoSwitchSlave(
        log, broker_id=2, options=replace(OPTIONS, streams=True, overlap_bytes=0)
    )
    slave.on(Opened(), 0)
    slave.on(FrameReceived(HandshakeReply(300, 1, log.epochs)), 0)
    assert slave.is_receiving

    body = ModelLog().begin(1).put("abcd").read(300, 100)
    effects = slave.on(FrameReceived(Transfer(300, 1, 0, 300, body)), 0)
    assert Append(300, body) in effects
    assert not slave.is_receiving

    log.put("d")
    (receive,) = [each for each in slave.on(LogGrew(), 0) if isinstance(each, Receive)]
    assert receive.offset == 400
