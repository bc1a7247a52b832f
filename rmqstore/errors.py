"""Every exception of the package, and the map from the statuses of the C core to them.

StoreError
  ConfigError (ValueError)              every violation in one message, by RocketMQ key
  ArgumentError (ValueError)            an argument that no store could accept
    ArgumentTypeError (TypeError)       an argument of a wrong type
  StoreClosedError (ValueError)         closed, or inherited through fork
  StoreLockedError                      held by another process, with its pid where known
  DiskError (OSError)                   the system refused: errno
  StoreMemoryError (MemoryError)
  CorruptionError                       path, physical_offset, kind, suggested_command
  OffsetOutOfRange (IndexError)         start, end, nearest
  NotFoundError (LookupError)
  UnsupportedStoreError                 a format that is recognised and left alone
  ViewsOpenError (BufferError)          closing under live views
  StoreTimeout (TimeoutError)           a wait other than that of a put
  MissingExtraError (ImportError)       names the extra to install
  PutError                              status, stored, retriable, receipt
    MessageRejected (ValueError)        too large, illegal, reserved characters: names the limit
    NotWritable                         role, disk or mode forbids; master_hint
    PageCacheBusy                       back-pressure
    FlushTimeout (TimeoutError)         stored, perhaps not yet on disk
    InSyncReplicasNotEnough             not stored
    ReplicaTimeout (TimeoutError)       stored, perhaps not yet copied
  Fenced                                a newer epoch exists: epoch, master
  RemotingError                         code, remark of the peer
    RequestRefused                      raised by a handler: the code and remark to answer with
      InvalidFieldError (ValueError)    a field of a request header: its name
    RemotingFrameError (ValueError)     bytes that are not a frame, or text that is not a body
    RemotingConnectError (ConnectionError)   no connection to the peer
    RemotingClosedError (ConnectionError)    the connection ended before the answer
    RemotingTimeout (TimeoutError)      no answer in time

Messages name the place, the limit and the cure. Attributes beyond the message stay assignable, so
that a layer that knows more (the path, the receipt) can fill them in before the exception goes on.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType

__all__ = [
    "STATUS",
    "ArgumentError",
    "ArgumentTypeError",
    "ConfigError",
    "CorruptionError",
    "DiskError",
    "Fenced",
    "FlushTimeout",
    "InSyncReplicasNotEnough",
    "InvalidFieldError",
    "MessageRejected",
    "MissingExtraError",
    "NotFoundError",
    "NotWritable",
    "OffsetOutOfRange",
    "PageCacheBusy",
    "PutError",
    "RemotingClosedError",
    "RemotingConnectError",
    "RemotingError",
    "RemotingFrameError",
    "RemotingTimeout",
    "ReplicaTimeout",
    "RequestRefused",
    "StoreClosedError",
    "StoreError",
    "StoreLockedError",
    "StoreMemoryError",
    "StoreTimeout",
    "UnsupportedStoreError",
    "ViewsOpenError",
    "before_the_start",
    "disk_errors",
    "for_status",
    "missing_file",
    "not_admitted",
    "not_replicated",
    "put_not_flushed",
    "put_refused",
    "put_was_cut",
    "replica_timeout",
]

_DESCRIPTORS_CURE = "; raise the limit of descriptors (ulimit -n), or keep fewer files open"
_INVALID_PARAMETER = 29  # ResponseCode.INVALID_PARAMETER; rmqstore.remoting is a higher layer.


class StoreError(Exception):
    """The root of all errors this package raises on purpose."""


class ConfigError(StoreError, ValueError):
    """A configuration with mistakes: all of them, one line each, by RocketMQ key."""

    def __init__(self, violations: Iterable[str], *, source: str = "") -> None:
        self.violations = tuple(violations)
        self.source = source
        super().__init__(self.violations)

    def __str__(self) -> str:
        place = f" in {self.source}" if self.source else ""
        count = len(self.violations)
        heading = f"{count} configuration {'mistake' if count == 1 else 'mistakes'}{place}:"
        return "\n  ".join((heading, *self.violations))


class ArgumentError(StoreError, ValueError):
    """An argument outside what the call accepts; nothing was done."""


class ArgumentTypeError(ArgumentError, TypeError):
    """An argument of a wrong type; nothing was done."""


class StoreClosedError(StoreError, ValueError):
    """The store was closed, or was opened before a fork; open it again in this process."""


class StoreLockedError(StoreError):
    """Another process holds the store; *process_id* is its pid, None where the system does not
    tell."""

    def __init__(self, message: str, *, process_id: int | None = None) -> None:
        super().__init__(message)
        self.process_id = process_id


class DiskError(StoreError, OSError):
    """The operating system refused a file operation; `errno` says why."""

    def __init__(self, os_errno: int, message: str) -> None:
        lacks_descriptor = os_errno in (errno.EMFILE, errno.ENFILE)
        # An error that was pickled has the cure already.
        if lacks_descriptor and not message.endswith(_DESCRIPTORS_CURE):
            message = f"{message}{_DESCRIPTORS_CURE}"
        super().__init__(os_errno, message)

    @property
    def lacks_space(self) -> bool:
        """Whether the disk, or the quota of the user, is full."""
        return self.errno in (errno.ENOSPC, errno.EDQUOT)


class StoreMemoryError(StoreError, MemoryError):
    """The core could not get memory; nothing was changed."""


class CorruptionError(StoreError):
    """Bytes on disk that cannot be what was written.

    *path* is the file ("" where unknown), *physical_offset* the place (-1 where unknown), *kind*
    the format at fault, *suggested_command* the command line that looks closer or repairs.
    """

    def __init__(
        self,
        message: str,
        *,
        path: str = "",
        physical_offset: int = -1,
        kind: str = "",
        suggested_command: str = "",
    ) -> None:
        super().__init__(message)
        self.path = path
        self.physical_offset = physical_offset
        self.kind = kind
        self.suggested_command = suggested_command


class OffsetOutOfRange(StoreError, IndexError):
    """An offset outside [*start*, *end*); *nearest* is where reading can go on. None where
    unknown."""

    def __init__(
        self,
        message: str,
        *,
        start: int | None = None,
        end: int | None = None,
        nearest: int | None = None,
    ) -> None:
        super().__init__(message)
        self.start = start
        self.end = end
        self.nearest = nearest


class NotFoundError(StoreError, LookupError):
    """No such topic, queue, key or message."""


class UnsupportedStoreError(StoreError):
    """The directory or file holds a format this package recognises and leaves alone."""


class ViewsOpenError(StoreError, BufferError):
    """Views into mapped files are still alive; release them, then close again."""


class StoreTimeout(StoreError, TimeoutError):
    """A wait (for dispatch, for a flush without a put) ended before its condition held."""


class MissingExtraError(StoreError, ImportError):
    """An optional package is not installed; the message names the extra that brings it."""


class PutError(StoreError):
    """A put that was not acknowledged.

    *status* is RocketMQ's name and equals the member of `PutStatus` with that name. *stored* says
    whether the message is in the local log (None: unknown), *retriable* whether the same put may
    succeed later; a retry of a stored message makes a duplicate. *receipt* is that of the stored
    message, None without one.
    """

    status: str = "UNKNOWN_ERROR"
    stored: bool | None = None
    retriable: bool = False

    def __init__(
        self, message: str, *, status: str | None = None, receipt: object | None = None
    ) -> None:
        super().__init__(message)
        if status is not None:
            self.status = status
        self.receipt = receipt


class MessageRejected(PutError, ValueError):
    """The message breaks a limit of the format or of the configuration; it will never be
    accepted."""

    status = "MESSAGE_ILLEGAL"
    stored = False


class NotWritable(PutError):
    """The store takes no writes: opened read-only, slave role, disk full, or an earlier failed
    flush.

    *master_hint* is the address of the writer where one is known.
    """

    status = "SERVICE_NOT_AVAILABLE"
    stored = False
    master_hint: str | None = None


class PageCacheBusy(PutError):
    """The put lock was held too long; slow down and put again."""

    status = "OS_PAGE_CACHE_BUSY"
    stored = False
    retriable = True


class FlushTimeout(PutError, TimeoutError):
    """The message is in the log and was not seen on disk in time."""

    status = "FLUSH_DISK_TIMEOUT"
    stored = True
    retriable = True


class InSyncReplicasNotEnough(PutError):
    """Too few replicas keep up; nothing was written."""

    status = "IN_SYNC_REPLICAS_NOT_ENOUGH"
    stored = False
    retriable = True


class ReplicaTimeout(PutError, TimeoutError):
    """The message is in the local log and was not acknowledged by enough replicas in time, or the
    master's role or lease ended before the put returned."""

    status = "FLUSH_SLAVE_TIMEOUT"
    stored = True
    retriable = True


class Fenced(StoreError):
    """A newer epoch exists, this store may not write in the old one."""

    def __init__(self, message: str, *, epoch: int = -1, master: str | None = None) -> None:
        super().__init__(message)
        self.epoch = epoch
        self.master = master


class RemotingError(StoreError):
    """A request to a peer failed; its answer had this *code* and *remark* (-1 and "" where there
    was no answer)."""

    def __init__(self, message: str, *, code: int = -1, remark: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.remark = remark


class RequestRefused(RemotingError):
    """Raised by the handler of a request; the server answers with *code* and *remark*."""

    def __init__(self, remark: str, *, code: int) -> None:
        super().__init__(remark, code=code, remark=remark)


class InvalidFieldError(RequestRefused, ValueError):
    """The header of a request lacks the *field*, or its value is not of the field's type."""

    def __init__(self, remark: str, *, field: str) -> None:
        super().__init__(remark, code=_INVALID_PARAMETER)
        self.field = field


class RemotingFrameError(RemotingError, ValueError):
    """Bytes that are not a frame of the remoting protocol, or a body that cannot be read."""


class RemotingConnectError(RemotingError, ConnectionError):
    """There is no connection to the peer; the request was not sent."""


class RemotingClosedError(RemotingError, ConnectionError):
    """The connection ended before the answer; the peer may have carried the request out."""


class RemotingTimeout(RemotingError, TimeoutError):
    """The answer did not come in time; the peer may have carried the request out."""


STATUS: Mapping[str, int] = MappingProxyType(
    {
        "OK": 0,
        "NOT_FOUND": 1,
        "END": 2,
        "INVALID": 3,
        "NO_MEMORY": 4,
        "IO": 5,
        "NO_SPACE": 6,
        "CORRUPT": 7,
        "LOCKED": 8,
        "CLOSED": 9,
        "READ_ONLY": 10,
        "OUT_OF_RANGE": 11,
        "MESSAGE_ILLEGAL": 12,
        "PROPERTIES_TOO_LARGE": 13,
        "NOT_WRITABLE": 14,
        "PAGE_CACHE_BUSY": 15,
        "FLUSH_TIMEOUT": 16,
        "TIMEOUT": 17,
        "BUSY": 18,
        "UNSUPPORTED": 19,
        "FORKED": 20,
    }
)
"""The statuses of csrc/base/status.h by name, without their prefix."""

_SIMPLE: Mapping[int, Callable[[str], StoreError]] = MappingProxyType(
    {
        STATUS["NOT_FOUND"]: NotFoundError,
        STATUS["END"]: NotFoundError,
        STATUS["INVALID"]: ArgumentError,
        STATUS["NO_MEMORY"]: StoreMemoryError,
        STATUS["LOCKED"]: StoreLockedError,
        STATUS["CLOSED"]: StoreClosedError,
        STATUS["READ_ONLY"]: NotWritable,
        STATUS["OUT_OF_RANGE"]: OffsetOutOfRange,
        STATUS["MESSAGE_ILLEGAL"]: MessageRejected,
        STATUS["PROPERTIES_TOO_LARGE"]: MessageRejected,
        STATUS["NOT_WRITABLE"]: NotWritable,
        STATUS["PAGE_CACHE_BUSY"]: PageCacheBusy,
        STATUS["FLUSH_TIMEOUT"]: FlushTimeout,
        STATUS["TIMEOUT"]: StoreTimeout,
        STATUS["BUSY"]: ViewsOpenError,
        STATUS["UNSUPPORTED"]: UnsupportedStoreError,
        STATUS["FORKED"]: StoreClosedError,
    }
)


def for_status(status: int, text: str, detail: str, os_errno: int, at_offset: int) -> StoreError:
    """Return the exception for a status of the C core, ready to be raised.

    *text* is the status's own wording, *detail* what the core said of this failure ("" for
    nothing), *os_errno* is 0 unless the system refused something, *at_offset* is -1 unless a byte
    or queue offset names the place. A status this module does not know becomes a plain StoreError.
    """
    assert status != STATUS["OK"], "success is not an error"
    message = f"{text}: {detail}" if detail else text
    # Of a rejected message the place is its number in the call, not an offset.
    is_rejected = status in (STATUS["MESSAGE_ILLEGAL"], STATUS["PROPERTIES_TOO_LARGE"])
    if at_offset >= 0 and not is_rejected and not re.search(rf"(?<!\d){at_offset}(?!\d)", message):
        message = f"{message} (offset {at_offset})"

    if status == STATUS["CORRUPT"]:
        return CorruptionError(
            message,
            physical_offset=at_offset,
            kind="store data",
            suggested_command="rmqstore verify PATH",
        )
    if status == STATUS["IO"]:
        return DiskError(os_errno or errno.EIO, message)
    if status == STATUS["NO_SPACE"]:
        # Without an errno no call failed: the store itself refused the put to keep the disk from
        # filling.
        return DiskError(os_errno, message) if os_errno else NotWritable(message)
    error = _SIMPLE.get(status, StoreError)(message)
    if status == STATUS["PROPERTIES_TOO_LARGE"]:
        assert isinstance(error, MessageRejected)
        error.status = "PROPERTIES_SIZE_EXCEEDED"
    return error


def before_the_start(place: str, offset: int, low: int, high: int) -> OffsetOutOfRange:
    """Return the error of an *offset* that retention has overtaken, in a queue that now holds *low*
    to *high*."""
    return OffsetOutOfRange(
        f"{place} begins at {low}; offset {offset} is gone", start=low, end=high, nearest=low
    )


def missing_file(place: str, offset: int) -> CorruptionError:
    """Return the error of an *offset* within a queue of which no file holds it."""
    return CorruptionError(
        f"{place}: no file holds the offset {offset}; rebuild it with rmqstore repair"
    )


def not_replicated(path: str) -> InSyncReplicasNotEnough:
    """Return the error of a put with copies to the store at *path*, which is not a master."""
    return InSyncReplicasNotEnough(
        f"store {path} has no replicas; ask for Durability.DISK, or replicate it"
    )


def not_admitted(path: str, status: str, reason: str, *, master_hint: str | None) -> PutError:
    """Return the error of a put that the rule of a master did not admit, for *reason*."""
    text = f"store {path}: {reason}; nothing was stored"
    if status == PageCacheBusy.status:
        return PageCacheBusy(text)
    if status == NotWritable.status:
        refused = NotWritable(text)
        refused.master_hint = master_hint
        return refused
    return InSyncReplicasNotEnough(text, status=status)


def put_refused(
    error: StoreError,
    *,
    master_hint: str | None = None,
    is_retriable: bool = False,
    stored: Sequence[object] = (),
    number: int = -1,
    count: int = 1,
) -> StoreError:
    """Return the error of a put whose append failed with *error*.

    A failure of the disk, or a folder that is gone, is a PutError like every other reason. Of a
    call with *count* messages, *number* is the one that was rejected, and *stored* are the receipts
    of those before the failure.
    """
    if isinstance(error, NotWritable):
        error.master_hint = master_hint
    if isinstance(error, (DiskError, NotFoundError)):
        refused = NotWritable(str(error), status="CREATE_MAPPED_FILE_FAILED")
        refused.retriable = is_retriable
        refused.__cause__ = error
        error = refused
    if isinstance(error, MessageRejected) and number >= 0 and count > 1:
        error.add_note(f"message number {number} of the call, counted from 0; none was stored")
    if isinstance(error, PutError) and stored:
        error.receipt = stored
        error.stored = None  # Some are, some are not.
    return error


def put_not_flushed(error: StoreError, receipt: object, *, is_unknown: bool) -> StoreError:
    """Return the error of a put that is in the log and was not seen on the disk.

    *is_unknown*: its sync failed, so the bytes may be on the disk or not.
    """
    if isinstance(error, PutError):
        error.receipt = receipt
        if is_unknown:
            error.stored = None
            error.status = FlushTimeout.status
    return error


def put_was_cut(path: str, receipt: object) -> PutError:
    """Return the error of a put whose message a later cut of the log may have removed."""
    return PutError(
        f"store {path}: the log was cut after the message was appended; look whether it is still "
        "there, and put it again if not",
        status=FlushTimeout.status,
        receipt=receipt,
    )


def replica_timeout(
    path: str, status: str, receipt: object, *, copies: int, needed: int, needs_all: bool
) -> ReplicaTimeout:
    """Return the error of a put that is stored and did not get its copies in time, or may no longer
    be acknowledged."""
    if copies < needed:
        why = f"{copies} of {needed} copies were acknowledged in time (slaveTimeout)"
    elif needs_all:
        why = (
            "not every member of the sync-state set acknowledged the message in time (slaveTimeout)"
        )
    else:
        why = "this master's role or lease ended before the message was acknowledged"
    return ReplicaTimeout(
        f"store {path}: {why}; the message is stored and may still be replicated",
        status=status,
        receipt=receipt,
    )


@contextmanager
def disk_errors(act: str) -> Iterator[None]:
    """Let failures of the operating system leave the block, or function, as DiskError.

    *act* says what was being done: "reading the store".
    """
    try:
        yield
    except StoreError:
        raise
    except OSError as error:
        # Calls on descriptors have the number in the place of the name.
        is_named = error.filename and not isinstance(error.filename, int)
        place = f" at {error.filename}" if is_named else ""
        reason = error.strerror or error
        raise DiskError(error.errno or errno.EIO, f"{act} failed{place}: {reason}") from error
