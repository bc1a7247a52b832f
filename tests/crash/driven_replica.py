"""A replica on the C core, behind a file door of choice: the store's changes, and its roles."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from rmqstore.epochs import EpochList
from rmqstore.replication.group.epoch_state import (
    EpochState,
    format_epoch_state,
    parse_epoch_state,
)
from rmqstore.replication.group.quorum import Mode, Quorum
from rmqstore.replication.group.roles import (
    AwaitDispatch,
    Change,
    Follow,
    Gate,
    RoleEffect,
    RoleMachine,
    Serve,
    Settle,
)
from rmqstore.replication.protocol.events import (
    FlushLog,
    PromiseConfirm,
    SaveEpochs,
    SaveEpochState,
)
from rmqstore.store.directory import EPOCH_FILE, EPOCH_STATE_FILE, PROMISE_FILE
from tests.c.store_calls import LOG_FILE_SIZE
from tests.crash.driven_store import QUEUES, TOPIC, Driven, Record
from tests.crash.power_loss import HEAD_SIZE

__all__ = ["Replica", "Step"]


class Step(NamedTuple):
    """A step of a role change that was carried out."""

    mark: int
    """How many effects on the disk were before its end."""
    effect: RoleEffect[str]
    epoch: int
    """The epoch that was ordered."""
    end_offset: int


class Replica:
    """A store whose bytes come raw from an imaginary master, behind a file door of choice, and
    whose roles are those of the role machine. Implements what that sees of a LogView.

    *written* is every record that was ever in the log, with the epoch it was written in. *mark*
    counts the effects on the disk so far.
    """

    is_gated = True

    def __init__(
        self, core: Any, root: Path, vfs: Any, *, mark: Callable[[], int] = lambda: 0
    ) -> None:
        self.core, self.root, self.vfs = core, root, vfs
        self.store = Driven(core, root, vfs)
        self.written: list[tuple[Record, int]] = []

        self.epoch = 1
        self.numbers = 0
        self.offsets = [0] * QUEUES

        self.epochs = EpochList.load(self).entries
        self.epoch_state = self._kept_state()
        self.is_promised = self._path(PROMISE_FILE).exists()
        self.whole_end = self.end_offset

        self.roles: RoleMachine[str] = RoleMachine(
            self, quorum=Quorum(in_sync=2), mode=Mode.PLAIN, place="here"
        )

        self.steps: list[Step] = []
        self.taken_mark = 1 << 60
        """When the first change for another master began."""
        self._mark = mark

    def _path(self, name: str) -> Path:
        return self.root / name

    def _kept_state(self) -> EpochState:
        path = self._path(EPOCH_STATE_FILE)
        return parse_epoch_state(path.read_text()) if path.exists() else EpochState()

    # ---- what the role machine sees

    @property
    def start_offset(self) -> int:
        return max(self.store.start_offset, 0)

    @property
    def end_offset(self) -> int:
        return max(self.store.end_offset, 0)

    @property
    def confirm_offset(self) -> int:
        bound = self.store.confirm_bound
        return -1 if bound is None else bound

    # ---- roles

    def become_master(self, epoch: int) -> None:
        self.change(epoch, self.roles.become_master(epoch, others_asked=True))

    def become_slave(self, epoch: int, *, master: str = "the other") -> None:
        self.change(epoch, self.roles.become_slave(master, epoch))

    def change(self, epoch: int, change: Change[str]) -> None:
        for effect in change:
            self.carry_out(effect)
            self.steps.append(Step(self._mark(), effect, epoch, self.end_offset))

    def carry_out(self, effect: RoleEffect[str]) -> None:
        match effect:
            case Settle():
                self.settle(self.whole_end)
            case Gate():
                if self.confirm_offset < 0:
                    self.confirm(self.whole_end)
            case Follow():
                assert self.confirm_offset >= 0, "readers may see what nobody has confirmed"
            case Serve(epoch):
                self.epoch = epoch
            case AwaitDispatch(end_offset):
                self.store.wait_dispatched(end_offset)
            case FlushLog():
                self.store.wait_flushed(self.end_offset)
            case SaveEpochs(entries):
                self.save(EpochList(entries))
            case SaveEpochState(state):
                self._replace(EPOCH_STATE_FILE, format_epoch_state(state))
                self.epoch_state = state
            case PromiseConfirm(is_promise):
                self._replace(PROMISE_FILE, "confirm\n" if is_promise else "0\n")
                self.is_promised = is_promise

    # ---- the effects that machines ask for

    def save(self, epochs: EpochList) -> None:
        epochs.save(self)
        self.epochs = epochs.entries

    def take_from_master(self, epoch: int) -> None:
        """Begin to change the log for the master of *epoch*."""
        self.taken_mark = min(self.taken_mark, self._mark())
        self.epoch = epoch

    def truncate(self, offset: int) -> None:
        self.store.truncate(offset)
        self.whole_end = min(self.whole_end, offset)

    def read(self, name: str) -> str | None:
        path = self.root / (EPOCH_FILE + name)
        return path.read_text() if path.exists() else None

    def replace(self, name: str, text: str) -> None:
        self._replace(EPOCH_FILE + name, text)

    def _replace(self, name: str, text: str) -> None:
        lib, data = self.core[1], text.encode()
        self.store.check(
            lib.rmq_small_file_replace(
                self.vfs, bytes(self.root), name.encode(), data, len(data), self.store.error
            )
        )

    def remove(self, name: str) -> None:
        file_name = (EPOCH_FILE + name).encode()
        self.store.check(
            self.core[1].rmq_small_file_remove(
                self.vfs, bytes(self.root), file_name, self.store.error
            )
        )

    def restart(self, offset: int) -> None:
        self.whole_end = offset
        self.store.check(self.core[1].rmq_store_restart(self.store.store, offset, self.store.error))

    def settle(self, whole_end: int) -> None:
        self.store.check(
            self.core[1].rmq_store_settle(self.store.store, whole_end, self.store.error)
        )

    def confirm(self, offset: int) -> None:
        self.store.set_confirm_offset(offset)

    # ---- what comes from the master

    def receive(self, count: int, *, cut: int = 0) -> None:
        """Append *count* records, the last one without its last *cut* bytes."""
        for left in range(count, 0, -1):
            at = max(self.store.end_offset, 0)
            record, data = self._next(at)
            self.written.append((record, self.epoch))
            self.store.append_raw(at, data[: len(data) - (cut if left == 1 else 0)])
            if left > 1 or cut == 0:
                self.whole_end = self.end_offset

    def _next(self, at: int) -> tuple[Record, bytes]:
        self.numbers += 1
        number = self.numbers
        queue_id = number % QUEUES
        body = b"%06d" % number + bytes((number % 255,)) * 300
        properties = b"KEYS\x01k%d all\x02" % number
        size = HEAD_SIZE + len(body) + 1 + len(TOPIC) + 2 + len(properties)
        left = LOG_FILE_SIZE - at % LOG_FILE_SIZE
        blank = b""
        if size > left - 8:
            blank = left.to_bytes(4, "big") + 0xCBD43194.to_bytes(4, "big") + bytes(left - 8)
        place = at + len(blank)
        record = Record(place, size, queue_id, self.offsets[queue_id], body, properties)
        self.offsets[queue_id] += 1
        return record, blank + self.store.encode(record, number)

    def put(self) -> None:
        """Take a message oneself."""
        self.numbers += 1
        number = self.numbers
        body, properties = b"%06d own" % number, b"KEYS\x01k%d all\x02" % number
        (record,) = self.store.put_messages([(number, body, properties)])
        self.written.append((record, self.epoch))
        self.whole_end = self.end_offset

    def flush(self) -> None:
        self.store.wait_dispatched(self.store.end_offset)
        self.store.flush()

    def record(self, index: int) -> Record:
        return self.written[index][0]
