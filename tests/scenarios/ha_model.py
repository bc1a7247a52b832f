"""A log in memory, and one or two machines of replication that work on such logs.

What happens is written down line by line, so that a scenario is a few calls and the text that they
must lead to:

    slave > ack 120                        a frame, who sent it
    slave: append 120+240                  an effect, who asked for it
    -- 6000 ms                             time that passed
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from textwrap import dedent, wrap

from rmqstore.epochs import EpochEntry, EpochList
from rmqstore.replication.group.epoch_state import EpochState
from rmqstore.replication.protocol.events import (
    Acked,
    Append,
    CaughtUp,
    Close,
    Closed,
    Damaged,
    Effect,
    Event,
    Failed,
    FlushLog,
    FrameReceived,
    Halt,
    Joined,
    LogGrew,
    Opened,
    PromiseConfirm,
    Restart,
    SaveEpochs,
    SaveEpochState,
    Send,
    SendLog,
    SetConfirm,
    Tick,
    TruncateTo,
    Writable,
)
from rmqstore.replication.protocol.frames import (
    Ack,
    ClassicData,
    Frame,
    Handshake,
    HandshakeReply,
    Report,
    Transfer,
)
from rmqstore.replication.protocol.master import MasterMachine
from rmqstore.replication.protocol.slave import SlaveMachine

STEPS_MAX = 20_000


def entries(*pairs: tuple[int, int]) -> tuple[EpochEntry, ...]:
    return tuple(EpochEntry(epoch, start) for epoch, start in pairs)


class Died(Exception):
    """The process ends here."""


class EpochDisk:
    """The two files of an epoch list; the replacement or removal numbered *dies_at* never is."""

    def __init__(self, *, dies_at: int = -1) -> None:
        self.texts: dict[str, str] = {}
        self.dies_at = dies_at

    def read(self, name: str) -> str | None:
        return self.texts.get(name)

    def replace(self, name: str, text: str) -> None:
        self._step()
        self.texts[name] = text

    def remove(self, name: str) -> None:
        self._step()
        self.texts.pop(name, None)

    def _step(self) -> None:
        if self.dies_at == 0:
            raise Died
        self.dies_at -= 1


class ModelLog:
    """A log whose messages are runs of one letter; implements LogView."""

    def __init__(self, *, start: int = 0, file_size: int = 1000) -> None:
        self.start_offset = start
        self.data = b""
        self.borders = {start}
        self.epochs: Sequence[EpochEntry] = ()
        self.epoch_state = EpochState()
        self.confirm_offset = 0
        self.is_gated = False
        self.promised: int | None = 0
        self.file_size = file_size
        self.flushed_offset = start
        self.flushes_at_once = True
        self.damaged_at: int | None = None
        self.fails: set[type[Effect]] = set()

    @property
    def end_offset(self) -> int:
        return self.start_offset + len(self.data)

    @property
    def is_promised(self) -> bool:
        return self.promised is None

    @property
    def promised_offset(self) -> int:
        return self.confirm_offset if self.promised is None else self.promised

    @property
    def whole_end(self) -> int:
        """A message of the model is whole however little of it is there."""
        return self.end_offset

    @property
    def last_file_start(self) -> int:
        last = self.end_offset - self.end_offset % self.file_size
        return max(last - (self.file_size if last == self.end_offset else 0), self.start_offset)

    @property
    def last_record_start(self) -> int:
        before = [each for each in self.borders if each < self.end_offset]
        return max(before, default=self.start_offset)

    def file_end(self, offset: int) -> int:
        return offset - offset % self.file_size + self.file_size

    def is_border(self, offset: int) -> bool:
        return offset in self.borders or offset == self.end_offset

    def read(self, offset: int, size: int) -> bytes:
        assert self.start_offset <= offset
        assert offset + size <= self.end_offset
        return self.data[offset - self.start_offset :][:size]

    def put(self, letters: str, *, size: int = 100) -> ModelLog:
        """Append a message of *size* bytes for each letter."""
        self.borders.add(self.end_offset)
        for letter in letters:
            self.data += letter.encode() * size
            self.borders.add(self.end_offset)
        self.flush()
        return self

    def begin(self, epoch: int) -> ModelLog:
        """Append an epoch at the end."""
        self.epochs = EpochList(tuple(self.epochs)).begin(epoch, log_end=self.end_offset).entries
        return self

    def flush(self) -> None:
        if self.flushes_at_once:
            self.flushed_offset = self.end_offset

    def trim(self, offset: int) -> ModelLog:
        """Delete the bytes before *offset*."""
        self.data = self.data[offset - self.start_offset :]
        self.start_offset = offset
        self.borders = {each for each in self.borders if each >= offset}
        return self

    def cut(self, offset: int) -> None:
        self.data = self.data[: offset - self.start_offset]
        self.borders = {each for each in self.borders if each <= offset}
        self.flushed_offset = min(self.flushed_offset, offset)

    def carry_out(self, effect: Effect) -> str | None:
        """Change the log as *effect* says; return why that failed."""
        if type(effect) in self.fails:
            return "No space left on device"
        match effect:
            case Append(offset, data):
                assert offset == self.end_offset
                self.data += bytes(data)
                # Records are runs of a letter, so a change of letters is a border.
                for at in range(max(offset, self.start_offset + 1), self.end_offset):
                    pair = self.read(at - 1, 2)
                    if pair[0] != pair[1]:
                        self.borders.add(at)
                self.flush()
            case TruncateTo(offset):
                assert self.start_offset <= offset <= self.end_offset
                self.cut(offset)
            case Restart(offset):
                self.data, self.start_offset, self.borders = b"", offset, {offset}
                self.flushed_offset = offset
            case SaveEpochs(epochs):
                self.epochs = epochs
            case SaveEpochState(state):
                self.epoch_state = state
            case SetConfirm(offset):
                self.confirm_offset = offset
            case PromiseConfirm(is_promise):
                self.promised = None if is_promise else self.promised_offset
            case FlushLog():
                self.flushed_offset = self.end_offset
        return None

    def letters(self) -> str:
        """Return the letters of the messages; equal ones behind each other count once."""
        text, last = "", ""
        for letter in self.data[::10].decode():
            text += letter if letter != last else ""
            last = letter
        return text

    def answer(self) -> str:
        return f"{self.start_offset}-{self.end_offset} {self.letters()} {told_epochs(self.epochs)}"


def told_epochs(epochs: Sequence[EpochEntry]) -> str:
    return " ".join(f"{each.epoch}@{each.start_offset}" for each in epochs) or "no epochs"


def told_frame(frame: Frame, *, size: int | None = None) -> str:
    match frame:
        case Report(offset):
            return f"report {offset}"
        case Ack(offset):
            return f"ack {offset}"
        case Handshake(last_file, learner, broker_id):
            flags = (" last-file" if last_file else "") + (" learner" if learner else "")
            return f"handshake of {broker_id}{flags}"
        case HandshakeReply(end, _, epochs):
            return f"reply: end {end}, {told_epochs(epochs)}"
        case ClassicData(offset, body):
            return f"data {offset}+{len(body) if size is None else size}"
        case Transfer(offset, epoch, start, confirm, body):
            size = len(body) if size is None else size
            return f"data {offset}+{size} epoch {epoch}@{start} confirm {confirm}"


def told_effect(effect: Effect) -> str:
    match effect:
        case Append(offset, data):
            return f"append {offset}+{len(data)}"
        case TruncateTo(offset):
            return f"cut {offset}"
        case Restart(offset):
            return f"restart {offset}"
        case FlushLog():
            return "flush"
        case SaveEpochs(epochs):
            return f"save {told_epochs(epochs)}"
        case SetConfirm(offset):
            return f"confirm {offset}"
        case PromiseConfirm(is_promise):
            return "promise" if is_promise else "no promise"
        case Joined(broker_id, learner):
            return f"joined {broker_id}{' learner' if learner else ''}"
        case CaughtUp(broker_id, at_ms):
            return f"caught up {broker_id} at {at_ms}"
        case Acked(broker_id, offset):
            return f"acked {broker_id} {offset}"
        case Close(reason, retry_after_ms):
            return f"close ({reason}), again after {retry_after_ms}"
        case Halt(reason):
            return f"halt ({reason})"
    raise AssertionError(effect)


class Play:
    """One machine or a pair of them over their logs, a clock, and what happened.

    A machine without a partner hears what the scenario says; a pair talks until both fall silent.
    The master of a pair is made again for every connection, by *new_master*.
    """

    def __init__(
        self,
        *,
        new_master: Callable[[], MasterMachine] | None = None,
        master_log: ModelLog | None = None,
        slave: SlaveMachine | None = None,
        slave_log: ModelLog | None = None,
    ) -> None:
        self.lines: list[str] = []
        self.now_ms = 0
        self.master: MasterMachine | None = None
        self.slave = slave
        self._new_master = new_master
        self._logs = {"master": master_log, "slave": slave_log}
        self._events: deque[tuple[str, Event]] = deque()

    def connect(self) -> Play:
        """Open a connection."""
        if self._new_master is not None:
            self.master = self._new_master()
            self._events.append(("master", Opened()))
        if self.slave is not None:
            self._events.append(("slave", Opened()))
        return self._settle()

    def hears(self, who: str, *frames: Frame) -> Play:
        """Let a machine without a partner receive *frames*."""
        partner = {"master": "slave", "slave": "master"}[who]
        for frame in frames:
            self.lines.append(f"{partner} > {told_frame(frame)}")
            self._events.append((who, FrameReceived(frame)))
            self._settle()
        return self

    def handle(self, who: str, event: Event) -> Play:
        self._events.append((who, event))
        return self._settle()

    def grew(self) -> Play:
        """Tell the master that its log has changed."""
        return self.handle("master", LogGrew())

    def wait(self, ms: int) -> Play:
        self.now_ms += ms
        self.lines.append(f"-- {ms} ms")
        self._events.extend((("master", Tick()), ("slave", Tick())))
        return self._settle()

    def say(self, line: str) -> Play:
        self.lines.append(line)
        return self

    def expect(self, text: str) -> Play:
        """Compare what happened since the last call."""
        lines, self.lines = self.lines, []
        happened = "\n".join("\n".join(wrap(line, 88, subsequent_indent="    ")) for line in lines)
        assert happened == dedent(text).strip()
        return self

    def _settle(self) -> Play:
        for _ in range(STEPS_MAX):
            if not self._events:
                return self
            who, event = self._events.popleft()
            machine = self.master if who == "master" else self.slave
            if machine is not None:
                self._carry_out(who, machine.on(event, self.now_ms))
        raise AssertionError("the machines never fall silent")

    def _carry_out(self, who: str, effects: list[Effect]) -> None:
        log = self._logs[who]
        assert log is not None
        partner = "slave" if who == "master" else "master"
        has_partner = (self._new_master is not None) and (self.slave is not None)

        moved = sent = False
        for effect in effects:
            match effect:
                case Send(frame):
                    self.lines.append(f"{who} > {told_frame(frame)}")
                    sent = True
                    if has_partner:
                        self._events.append((partner, FrameReceived(frame)))
                case SendLog(offset, size, header):
                    self.lines.append(f"{who} > {told_frame(header, size=size)}")
                    sent = True
                    if has_partner:
                        whole = with_body(header, log.read(offset, size))
                        self._events.append((partner, FrameReceived(whole)))
                case SaveEpochState():
                    # The log shows it; it would be a line of every first handshake.
                    failure = log.carry_out(effect)
                    if failure is not None:
                        self._events.append((who, Failed(failure)))
                        return
                case _:
                    self.lines.append(f"{who}: {told_effect(effect)}")
                    failure = log.carry_out(effect)
                    if failure is not None:
                        self._events.append((who, Failed(failure)))
                        return
                    moved |= isinstance(effect, Append | TruncateTo | Restart | FlushLog)
                    if has_partner and isinstance(effect, Close | Halt):
                        self._events.append((partner, Closed()))

        if who == "master" and sent:
            self._events.append((who, Writable()))

        if moved and log.damaged_at is not None and log.damaged_at < log.end_offset:
            self._events.appendleft((who, Damaged(log.damaged_at)))
        elif moved:
            self._events.appendleft((who, LogGrew()))


def with_body(header: ClassicData | Transfer, body: bytes) -> ClassicData | Transfer:
    return replace(header, body=body)
