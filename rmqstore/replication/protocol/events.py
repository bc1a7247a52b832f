"""The events and effects of the machines of replication, and how the machines see the log.

    effects = machine.on(event, now_ms)

*now_ms* is a clock that never goes back. The caller carries the effects out in their order before
it sends the machine any other event, so the log that a machine sees is always that of the moment.
When one of them fails, the rest of the list is dropped and `Failed` follows: nothing is
acknowledged whose append failed (docs/defects.md, H16). After a list with Append, TruncateTo,
Restart or FlushLog `LogGrew` follows; it may carry out several lists first, so that one
acknowledgement stands for all of them. The FlushLog of a connected slave need not be over before
other events are handled: LogGrew comes when it is, or a sync of a part of it.

A machine never reads a clock, a file or a socket. `next_tick_ms` returns when it needs a `Tick`.

With `HaOptions.streams` a machine hands the plain part of a connection over to the pump, which
takes no decisions (csrc/replica/pump.h), and handles what the pump hands back:

    master   Stream, then Streamed periodically, StreamEnded when it is handed back
    slave    Receive, then Received, ReceiveEnded

In between the machine sends nothing; `Heartbeat` and `SetUntil` are for the owner of the
connection. Progress is reported before each `Tick`. Frames that came and were not for the stream
are reported as usual, after the event that names them. A frame that is reported although a stream
was requested revokes the request, and the machine requests again. `Closed`, `Failed` and `Damaged`
end a stream as well, and a `Close` or `Halt` among the effects means that it must be stopped first.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from rmqstore import arguments
from rmqstore.arguments import shown
from rmqstore.config import ReplicaConfig
from rmqstore.config.options import filled, same_option
from rmqstore.config.replica_config import FRAME_BODY_BYTES_MAX
from rmqstore.epochs import EpochEntry
from rmqstore.errors import ArgumentError, ArgumentTypeError
from rmqstore.replication.group.epoch_state import EpochState
from rmqstore.replication.protocol.frames import Body, ClassicData, Frame, Transfer

__all__ = [
    "CUT_BYTES_MAX",
    "NO_EPOCHS",
    "Acked",
    "Append",
    "CaughtUp",
    "Close",
    "Closed",
    "Damaged",
    "Effect",
    "Event",
    "Failed",
    "FlushLog",
    "FrameReceived",
    "HaOptions",
    "HaState",
    "Halt",
    "Heartbeat",
    "Joined",
    "LogGrew",
    "LogView",
    "Opened",
    "Ordered",
    "PromiseConfirm",
    "Receive",
    "ReceiveEnded",
    "Received",
    "Restart",
    "SaveEpochState",
    "SaveEpochs",
    "Send",
    "SendLog",
    "SetConfirm",
    "SetUntil",
    "Stream",
    "StreamEnded",
    "Streamed",
    "Tick",
    "TruncateTo",
    "Writable",
]

CUT_BYTES_MAX = 1024 * 1024 * 1024

NO_EPOCHS = 2**31 - 1
"""The last epoch of a slave whose protocol has none: it cannot lack one."""


class HaState(enum.IntEnum):
    """Where a connection is; the numbers are those of RocketMQ's HAConnectionState."""

    READY = 0
    """Not connected."""
    HANDSHAKE = 1
    TRANSFER = 2
    SUSPEND = 3
    """Halted: an operator must act."""
    SHUTDOWN = 4
    """The connection of a master is over, and its machine with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HaOptions:
    """Timers and sizes of a connection, with RocketMQ's defaults."""

    heartbeat_ms: int = same_option(ReplicaConfig, "ha_send_heartbeat_interval_ms")
    """haSendHeartbeatInterval: an idle side writes after more than this."""
    housekeeping_ms: int = same_option(ReplicaConfig, "ha_housekeeping_interval_ms")
    """haHousekeepingInterval: a connection without a received byte for longer is closed."""
    handshake_ms: int = 5000
    """A slave closes when its handshake stays unanswered for longer."""
    reconnect_ms: int = 5000
    """A slave waits this long after a failure."""
    batch_bytes: int = same_option(ReplicaConfig, "ha_transfer_batch_bytes")
    """haTransferBatchSize: the largest body. RocketMQ's slave reads frames of 4 MiB at most."""
    window_bytes: int = 1024 * 1024
    """Bodies handed out between two `Writable`, so what a connection may keep in memory."""
    bytes_per_second: int = 0
    """maxHaTransferByteInSecond where haFlowControlEnable is set; 0: no limit."""
    overlap_bytes: int = 4096
    """How much of its own tail a slave asks for again and compares; 0: it trusts epochs alone, as
    RocketMQ does."""
    ack_flushed: bool | None = None
    """Acknowledge what is on the disk instead of what is in memory (H17). On a master: its own
    copy counts once it is on its disk. None: True if flushDiskType of the store is SYNC_FLUSH; a
    machine without a store then acknowledges memory."""
    ack_parts: bool = False
    """Acknowledge also the beginning of a record, as RocketMQ does. A damaged size then counts as
    one until more bytes come (H23)."""
    cut_bytes_max: int = CUT_BYTES_MAX
    """What a slave takes off its log is copied to `cut/` first. It halts before a longer cut; where
    it begins anew, it copies its last log files up to this size, and at least one."""
    checks: bool = False
    """In the auto-switch protocol, offer and accept frames with checks (csrc/format/ha_frame.h);
    Master and Slave always do."""
    streams: bool = False
    """Hand the plain part of a connection over (Stream, Receive); Master and Slave always do. A
    master with a limit of bytes per second goes on by itself."""

    @classmethod
    def from_config(cls, config: ReplicaConfig, **changes: int | None) -> HaOptions:
        """Return the options of *config*, with *changes* by field name; None changes nothing."""
        arguments.instance("config", config, ReplicaConfig)
        if changes.get("bytes_per_second") is None:
            limit = config.ha_transfer_bytes_per_second_max
            changes["bytes_per_second"] = limit if config.ha_flow_control_enable else 0
        return filled(cls, config, changes)

    def __post_init__(self) -> None:
        limits = {
            "heartbeat_ms": (1, 2**31 - 1),
            "housekeeping_ms": (1, 2**31 - 1),
            "handshake_ms": (1, 2**31 - 1),
            "reconnect_ms": (0, 2**31 - 1),
            "batch_bytes": (1, FRAME_BODY_BYTES_MAX),
            "window_bytes": (1, 2**31 - 1),
            "bytes_per_second": (0, 2**63 - 1),
            "overlap_bytes": (0, 2**31 - 1),
            "cut_bytes_max": (0, 2**63 - 1),
        }
        for name, (low, high) in limits.items():
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool):
                raise ArgumentTypeError(f"{name} is a {type(value).__name__}; give a whole number")
            if not low <= value <= high:
                text = shown(value, typed=False)
                raise ArgumentError(f"{name} is {text}; it must be from {low} to {high}")
        for name in ("ack_flushed", "ack_parts", "checks", "streams"):
            value = getattr(self, name)
            if not (isinstance(value, bool) or (value is None and name == "ack_flushed")):
                raise ArgumentTypeError(f"{name} is a {type(value).__name__}; give True or False")


class LogView(Protocol):
    """The commit log as a machine sees it: offsets of the moment, no copies."""

    @property
    def start_offset(self) -> int:
        """The first byte held."""

    @property
    def end_offset(self) -> int:
        """After the last byte held; 0 for a log that never held one."""

    @property
    def whole_end(self) -> int:
        """After the last record that is whole and checked; the bytes after it are the beginning of
        a record, or are not checked yet."""

    @property
    def flushed_offset(self) -> int:
        """After the last byte known to be on the disk."""

    @property
    def confirm_offset(self) -> int:
        """Up to here replicas agree, as far as this one knows."""

    @property
    def is_gated(self) -> bool:
        """Whether the masters of this group confirm only what replicas agree on."""

    @property
    def is_promised(self) -> bool:
        """Whether the confirm offset is a promise; see `PromiseConfirm`."""

    @property
    def promised_offset(self) -> int:
        """Up to here this log was confirmed by a promise: no cut goes below it."""

    @property
    def last_file_start(self) -> int:
        """Where the last log file begins."""

    @property
    def last_record_start(self) -> int:
        """Where the last whole message begins (no blank); start_offset when there is none."""

    @property
    def epochs(self) -> Sequence[EpochEntry]:
        """The entries of the log's epoch list, as saved."""

    @property
    def epoch_state(self) -> EpochState:
        """What is kept about epochs beside the list, as saved."""

    def file_end(self, offset: int) -> int:
        """Return where the log file that holds *offset* ends, full or not."""

    def is_border(self, offset: int) -> bool:
        """Return whether a record begins or the log ends at *offset*."""

    def read(self, offset: int, size: int) -> Body:
        """Return *size* bytes from *offset* on; all of them are held."""


# ---- events


@dataclass(frozen=True, slots=True)
class Opened:
    """The connection is there."""


@dataclass(frozen=True, slots=True)
class FrameReceived:
    """The peer sent a whole frame."""

    frame: Frame


@dataclass(frozen=True, slots=True)
class Closed:
    """The connection is gone, not by a Close of the machine. A slave answers with a Close that says
    when to connect again."""


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


@dataclass(frozen=True, slots=True)
class LogGrew:
    """The log's end, its durable end or its epochs have moved."""


@dataclass(frozen=True, slots=True)
class Ordered:
    """A slave was ordered to follow its master in *epoch*, and has saved that order."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Writable:
    """The connection took everything that was sent."""


@dataclass(frozen=True, slots=True)
class Failed:
    """An effect could not be carried out; those behind it were dropped."""

    reason: str


@dataclass(frozen=True, slots=True)
class Damaged:
    """A slave's log holds, from *offset* on, what no master can have written.

    Frames carry no checksum (H23). Who checks records as they become whole tells this instead of
    `LogGrew`, so that the bytes are never acknowledged. *what* says what is wrong with them.
    """

    offset: int
    what: str = "they are not a record"


@dataclass(frozen=True, slots=True, kw_only=True)
class Streamed:
    """How far a Stream has come; times are on the clock of *now_ms*."""

    next_offset: int
    """After the last byte sent."""
    acked_offset: int
    """What the slave acknowledged last, -1 for nothing."""
    acked_epoch: int = -1
    """The last epoch that it is known to have stored."""
    heard_ms: int
    """When the last whole frame of the slave came on this stream; -1: none has come."""
    wrote_ms: int
    """When bytes last went out."""
    blocked_ms: int | None = None
    """Since when the slave reads nothing of what waits for it; None: nothing waits."""
    caught_up_ms: int | None = None
    """The last moment whose whole log the slave is known to hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamEnded(Streamed):
    """A Stream is over, and everything it sent has left.

    *has_leftover*: the slave sent what is not for the stream; those frames follow.
    """

    has_leftover: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """How far a Receive has come. All but half a record at the end was checked."""

    next_offset: int
    """The log's end."""
    acked_offset: int
    acked_epoch: int = -1
    heard_ms: int
    """When the last whole frame of the master came on this stream; -1: none has come."""
    wrote_ms: int
    confirm_offset: int = -1
    """The greatest that the master named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiveEnded(Received):
    """A Receive is over. *has_leftover* as in StreamEnded."""

    has_leftover: bool = False


Event = (
    Opened
    | FrameReceived
    | Closed
    | Tick
    | LogGrew
    | Ordered
    | Writable
    | Failed
    | Damaged
    | Streamed
    | Received
)


# ---- effects


@dataclass(frozen=True, slots=True)
class Send:
    """Send a frame."""

    frame: Frame


@dataclass(frozen=True, slots=True)
class SendLog:
    """Send the head of *header*, whose body is empty here, and *size* bytes of the log as its
    body."""

    offset: int
    size: int
    header: ClassicData | Transfer


@dataclass(frozen=True, slots=True)
class Stream:
    """Send the log from *offset* on, and what is appended to it, in frames as `SendLog` would.

    All that was sent before has left. *header* has the label; its offset, body and confirm offset
    are those of the moment in each frame. The stream ends before a frame that would reach *until*,
    and at a frame of the slave that does not acknowledge an offset from *acked_offset* to what was
    sent, or that names an epoch below *acked_epoch* or above the label's. Without checks, an
    acknowledgement above *proof_offset* shows that the slave has stored the label.
    """

    offset: int
    header: ClassicData | Transfer
    until: int | None
    acked_offset: int
    acked_epoch: int
    proof_offset: int


@dataclass(frozen=True, slots=True)
class SetUntil:
    """The present Stream ends at *until*; it may have passed it already."""

    until: int | None


@dataclass(frozen=True, slots=True)
class Receive:
    """Take the log from *offset*, its end, on: append and check data frames that continue it, raise
    the confirm offset, acknowledge whole records.

    With *epoch*, the last one stored, only frames of that label are taken. Frames carry checks and
    acknowledgements name the epoch with *is_checked*, without it they do not. The receiving ends
    before any other frame.
    """

    offset: int
    acked_offset: int
    acked_epoch: int
    epoch: EpochEntry | None
    ack_flushed: bool
    is_checked: bool


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Let the present Stream or Receive send an empty frame, or its acknowledgement again."""


@dataclass(frozen=True, slots=True)
class Append:
    """Append *data* at *offset*, which is the log's end."""

    offset: int
    data: Body


@dataclass(frozen=True, slots=True)
class TruncateTo:
    """Cut the log, its queues and its index at *offset*; durable before the next effect."""

    offset: int


@dataclass(frozen=True, slots=True)
class Restart:
    """Give up all bytes of the log; its next byte is that at *offset*: not below its end, or 0."""

    offset: int


@dataclass(frozen=True, slots=True)
class FlushLog:
    """Flush the log to the disk; `LogView.flushed_offset` shows the progress."""


@dataclass(frozen=True, slots=True)
class SaveEpochs:
    """Make these the log's epoch list; durable before the next effect."""

    entries: tuple[EpochEntry, ...]


@dataclass(frozen=True, slots=True)
class SaveEpochState:
    """Keep *state* beside the epoch list; durable before the next effect."""

    state: EpochState


@dataclass(frozen=True, slots=True)
class SetConfirm:
    """The confirm offset of a slave. It goes back only right before a cut."""

    offset: int


@dataclass(frozen=True, slots=True)
class PromiseConfirm:
    """From here on the confirm offset is a promise, or is none; durable before the next effect.

    It is a promise if a master confirms only what no election can take away that follows the rules
    of the group. What was promised until a master came that promises nothing stays promised.
    """

    is_promise: bool


@dataclass(frozen=True, slots=True)
class Joined:
    """A slave has named itself. An older connection of the same id must be closed."""

    broker_id: int
    is_learner: bool
    names_epochs: bool = False
    """Its acknowledgements say which epoch it has stored; of others that is worked out."""


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """At *at_ms* a slave that is not a learner had everything that the master had."""

    broker_id: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class Acked:
    """A slave holds the log up to *offset*, which the master holds too, and has stored the epochs
    up to *epoch*; -1: none that is known."""

    broker_id: int
    offset: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Close:
    """Close the connection; a slave connects again after *retry_after_ms*."""

    reason: str
    retry_after_ms: int = 0


@dataclass(frozen=True, slots=True)
class Halt:
    """Close the connection and do not connect again: an operator must act. Nothing was touched."""

    reason: str


Effect = (
    Send
    | SendLog
    | Stream
    | SetUntil
    | Receive
    | Heartbeat
    | Append
    | TruncateTo
    | Restart
    | FlushLog
    | SaveEpochs
    | SaveEpochState
    | SetConfirm
    | PromiseConfirm
    | Joined
    | CaughtUp
    | Acked
    | Close
    | Halt
)
