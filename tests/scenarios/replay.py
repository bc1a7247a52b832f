"""One side of a recorded stream played by a machine: what it says must be what was recorded.

Time is not part of a recording, so repeated heartbeats count once. The other side's frames are
told in the recorded order, and a master's log grows as the recording shows that it did.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

from rmqstore.replication.protocol.autoswitch_master import AutoSwitchMaster
from rmqstore.replication.protocol.autoswitch_slave import AutoSwitchSlave
from rmqstore.replication.protocol.classic import ClassicMaster, ClassicSlave
from rmqstore.replication.protocol.events import (
    Event,
    FrameReceived,
    HaOptions,
    LogGrew,
    Opened,
    Send,
    SendLog,
    Writable,
)
from rmqstore.replication.protocol.frames import (
    Ack,
    ClassicData,
    ClassicDataParser,
    Frame,
    Handshake,
    HandshakeReply,
    MasterFrameParser,
    Report,
    ReportParser,
    SlaveFrameParser,
    Transfer,
)
from rmqstore.replication.protocol.slave import SlaveMachine
from tests.golden.wire import Stream, streams
from tests.scenarios.ha_model import ModelLog, with_body

_PARSERS = {
    "classic slave": ReportParser,
    "classic master": ClassicDataParser,
    "auto-switch slave": SlaveFrameParser,
    "auto-switch master": MasterFrameParser,
}
FILE_SIZE = 16384


def conversations(name: str) -> list[tuple[Sequence[Frame], Sequence[Frame]]]:
    """Return what slave and master said on each connection of a recorded case."""
    found: dict[tuple[str, int], dict[str, Sequence[Frame]]] = {}
    for stream in streams(name):
        both = found.setdefault((stream.wire, stream.connection), {})
        both[stream.speaker.split()[1]] = frames_of(stream)
    return [(both["slave"], both["master"]) for both in found.values()]


def frames_of(stream: Stream) -> Sequence[Frame]:
    parser = _PARSERS[stream.speaker]()
    return [frame for byte in stream.data for frame in parser.feed(bytes([byte]))]


def once(frames: Sequence[Frame]) -> list[Frame]:
    """Return *frames* without repetitions."""
    return [frame for frame, _ in groupby(frames)]


def play_slave(said: Sequence[Frame], heard: Sequence[Frame]) -> tuple[list[Frame], ModelLog]:
    """Return what a slave says that hears *heard*, and its log.

    It begins with a log as long as the recorded slave's first word about it says.
    """
    end = next((frame.offset for frame in said if isinstance(frame, Report | Ack)), 0)
    log = ModelLog(file_size=FILE_SIZE)

    if end:
        log.put("x", size=end)
        reply = next((frame for frame in heard if isinstance(frame, HandshakeReply)), None)
        epochs = reply.entries if reply is not None else ()
        log.epochs = tuple(each for each in epochs if each.start_offset < end)

    options = HaOptions(overlap_bytes=0)
    machine: SlaveMachine

    if isinstance(said[0], Handshake):
        hello = said[0]
        machine = AutoSwitchSlave(
            log,
            broker_id=hello.broker_id,
            options=options,
            is_learner=hello.is_learner,
            sync_from_last_file=hello.sync_from_last_file,
        )
    else:
        machine = ClassicSlave(log, options=options)

    sent: list[Frame] = []
    for event in (Opened(), *map(FrameReceived, heard)):
        for answer in (event, LogGrew()):
            for effect in machine.on(answer, 0):
                log.carry_out(effect)
                if isinstance(effect, Send):
                    sent.append(effect.frame)

    return sent, log


class RecordedLog(ModelLog):
    """The bytes that a recorded master sent, of which only those before *visible_end* count."""

    def __init__(self, said: Sequence[Frame], *, batch_bytes: int) -> None:
        data = [frame for frame in said if isinstance(frame, ClassicData | Transfer)]
        bodies = [frame for frame in data if frame.body]
        super().__init__(start=bodies[0].offset if bodies else 0, file_size=FILE_SIZE)

        self.ends: list[int] = []
        for frame in bodies:
            skip = self.end - frame.offset
            assert skip >= 0
            self.data += bytes(frame.body[skip:])

            is_cut = isinstance(frame, Transfer) and frame.epoch_start == self.end
            # A batch that could have been larger shows where the log ended.
            if len(frame.body) < batch_bytes and self.end % FILE_SIZE and not is_cut:
                self.ends.append(self.end)

        if self.ends[-1:] != [self.end]:
            self.ends.append(self.end)

        replies = [frame for frame in said if isinstance(frame, HandshakeReply)]
        self.epochs = replies[0].entries if replies else ()
        self.visible_end = replies[0].end_offset if replies else self.start_offset

    @property
    def end(self) -> int:
        return self.start_offset + len(self.data)

    @property
    def end_offset(self) -> int:
        return self.visible_end


def play_master(
    said: Sequence[Frame], heard: Sequence[Frame], *, batch_bytes: int
) -> tuple[list[Frame], int]:
    """Return what a master says that hears *heard*, and what was acknowledged to it."""
    log = RecordedLog(said, batch_bytes=batch_bytes)
    options = HaOptions(batch_bytes=batch_bytes, window_bytes=1)
    machine: AutoSwitchMaster | ClassicMaster
    if isinstance(heard[0], Handshake):
        machine = AutoSwitchMaster(log, broker_id=heard[0].broker_id + 1, options=options)
    else:
        machine = ClassicMaster(log, broker_id=2, options=options)
    sent: list[Frame] = []

    def handle(event: Event) -> None:
        # Writable over and over: the connection takes everything.
        for answer in (event, *[Writable()] * len(said)):
            for effect in machine.on(answer, 0):
                if isinstance(effect, Send):
                    sent.append(effect.frame)
                elif isinstance(effect, SendLog):
                    sent.append(with_body(effect.header, log.read(effect.offset, effect.size)))

    handle(Opened())
    for word in heard:
        while isinstance(word, Report | Ack) and log.ends and word.offset > log.end_offset:
            log.visible_end = log.ends.pop(0)
            handle(LogGrew())
        if isinstance(word, Report | Ack) and machine.next_offset is None and log.ends:
            # It has grown since the handshake.
            log.visible_end = log.ends.pop(0)
        handle(FrameReceived(word))
    while log.ends:
        log.visible_end = log.ends.pop(0)
        handle(LogGrew())
    return sent, machine.acked_offset


def essence(frames: Sequence[Frame]) -> list[Frame]:
    """Return *frames* without heartbeats that tell no new epoch, and without confirm offsets."""
    found: list[Frame] = []
    epoch = -1
    for frame in frames:
        if isinstance(frame, Transfer):
            if frame.offset == -1:
                continue
            if frame.body or frame.epoch != epoch:
                found.append(replace(frame, confirm_offset=0, body=bytes(frame.body)))
            epoch = frame.epoch
        elif not isinstance(frame, ClassicData) or frame.body:
            found.append(frame)
    return found
