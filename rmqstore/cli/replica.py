"""`replica`: one side of a replica group on a store directory, with live status."""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from rmqstore import replication
from rmqstore.cli.errors import EXIT_CODES, ExitCode, command, opened, tell
from rmqstore.cli.options import ConfigOption, JsonOption, StorePath
from rmqstore.cli.replica_status import StatusPrinter, has_caught_up
from rmqstore.cli.traffic import Traffic
from rmqstore.errors import StoreTimeout
from rmqstore.message import Durability
from rmqstore.replication import HaOptions, Mode, Quorum

if TYPE_CHECKING:
    from rmqstore.replication import ReplicatedStore

__all__ = ["app"]

app = typer.Typer(
    help=(
        "Run one side of a replica group, with live status: a line a second on a terminal, "
        "elsewhere a line whenever something changes. PATH is made when it is not there.\n\n"
        "Ends cleanly, with exit code 0, at Ctrl-C and SIGTERM; with 4 when the role ended by "
        "itself, or a slave halted for an operator to act."
    ),
    epilog=EXIT_CODES,
    no_args_is_help=True,
)

_LOOK_SECONDS = 0.1
_SIGNALS = (signal.SIGINT, signal.SIGTERM)

EpochOption = Annotated[
    int | None,
    typer.Option(
        "--epoch",
        min=0,
        help=(
            "Epoch to lead in, above every one given before. Default: 1 for a store without other "
            "replicas, the same epoch after a clean end; any other store needs it."
        ),
    ),
]
MasterEpochOption = Annotated[
    int | None,
    typer.Option(
        "--epoch", min=0, help="Epoch of the master; it is kept, and no older master is followed."
    ),
]
OthersAskedOption = Annotated[
    bool,
    typer.Option(
        "--others-asked",
        help=(
            "Statement that the other replicas were asked and this is the one to promote; needed, "
            "with --epoch, by a master that did not end cleanly."
        ),
    ),
]
JumpOption = Annotated[
    bool,
    typer.Option(
        "--allow-epoch-jump", help="Permission for an epoch over 1,000,000 above the last known."
    ),
]
BrokerIdOption = Annotated[
    int | None,
    typer.Option("--broker-id", min=0, help="Else one that the store keeps. Auto-switch only."),
]
ProtocolOption = Annotated[
    Literal["autoswitch", "classic"],
    typer.Option("--protocol", help="RocketMQ's: with epochs, or the one of older releases."),
]
IntervalOption = Annotated[
    float, typer.Option("--interval", metavar="SECONDS", min=0.1, help="Between two looks.")
]
OnceOption = Annotated[
    bool, typer.Option("--once", help="End when all is copied, instead of going on.")
]
BatchOption = Annotated[
    int, typer.Option("--batch-bytes", min=1, help="haTransferBatchSize: the largest frame.")
]
HeartbeatOption = Annotated[
    int, typer.Option("--heartbeat-ms", min=1, help="haSendHeartbeatInterval.")
]
HousekeepingOption = Annotated[
    int, typer.Option("--housekeeping-ms", min=1, help="haHousekeepingInterval.")
]
_OPTIONS = HaOptions()
_QUORUM = Quorum()


@app.command("master", epilog=EXIT_CODES)
@command
def master(
    path: StorePath,
    listen: Annotated[
        str, typer.Option("--listen", metavar="HOST:PORT", help="Port 0: any that is free.")
    ],
    epoch: EpochOption = None,
    others_asked: OthersAskedOption = False,
    allow_epoch_jump: JumpOption = False,
    broker_id: BrokerIdOption = None,
    protocol: ProtocolOption = "autoswitch",
    in_sync: Annotated[
        int, typer.Option("--in-sync", min=1, help="inSyncReplicas: copies that a put waits for.")
    ] = _QUORUM.in_sync,
    min_in_sync: Annotated[
        int, typer.Option("--min-in-sync", min=1, help="minInSyncReplicas.")
    ] = _QUORUM.min_in_sync,
    total: Annotated[
        int, typer.Option("--total", min=1, help="totalReplicas, the master included.")
    ] = _QUORUM.total,
    auto_in_sync: Annotated[
        bool, typer.Option("--auto-in-sync", help="enableAutoInSyncReplicas.")
    ] = False,
    all_ack: Annotated[
        bool, typer.Option("--all-ack", help="allAckInSyncStateSet: wait for all members.")
    ] = False,
    timeout_ms: Annotated[
        int, typer.Option("--timeout-ms", min=1, help="slaveTimeout.")
    ] = _QUORUM.timeout_ms,
    acting_master: Annotated[
        bool, typer.Option("--acting-master", help="Judge replicas as slaveActingMaster does.")
    ] = False,
    members: Annotated[
        str | None,
        typer.Option(metavar="ID,ID,...", help="The sync-state set, this broker's id included."),
    ] = None,
    set_epoch: Annotated[int, typer.Option("--set-epoch", min=0, help="The set's version.")] = 0,
    take_proposals: Annotated[
        bool,
        typer.Option(
            "--take-proposals",
            help="Take each change of the set that is proposed: only where nobody keeps the set.",
        ),
    ] = False,
    allow: Annotated[
        list[str] | None,
        typer.Option(metavar="NETWORK", help="Slaves from there only; may be repeated."),
    ] = None,
    batch_bytes: BatchOption = _OPTIONS.batch_bytes,
    heartbeat_ms: HeartbeatOption = _OPTIONS.heartbeat_ms,
    housekeeping_ms: HousekeepingOption = _OPTIONS.housekeeping_ms,
    bytes_per_second: Annotated[
        int, typer.Option("--bytes-per-second", min=0, help="To each slave; 0: no limit.")
    ] = 0,
    ack_flushed: Annotated[
        bool, typer.Option("--ack-flushed", help="Its own copy counts once it is on the disk.")
    ] = False,
    put: Annotated[
        int | None,
        typer.Option("--put", metavar="N", min=0, help="Put N messages; 0: until the end."),
    ] = None,
    size: Annotated[
        int, typer.Option("--size", metavar="BYTES", min=1, help="Of the body of each.")
    ] = 1024,
    rate: Annotated[
        int, typer.Option("--rate", min=0, help="Messages put a second; 0: no limit.")
    ] = 0,
    topic: Annotated[str, typer.Option("--topic", "-t", help="Where to put them.")] = "traffic",
    once: OnceOption = False,
    interval: IntervalOption = 1.0,
    json: JsonOption = False,
    config: ConfigOption = None,
) -> ExitCode:
    """Be master: take puts and serve slaves.

    With --put it makes its own messages, once as many replicas are there as puts wait for; their
    bodies are numbered.

    The first start needs no epoch, nor does one after a clean end. A master that was killed, or
    whose machine lost power, is refused: it may lack what its slaves acknowledged. Ask them, then
    promote the right replica with --epoch (and --others-asked, where it is this one).
    """
    quorum = Quorum(
        total=total,
        in_sync=in_sync,
        min_in_sync=min_in_sync,
        auto_in_sync=auto_in_sync,
        all_ack=all_ack,
        timeout_ms=timeout_ms,
    )
    options = HaOptions(
        batch_bytes=batch_bytes,
        heartbeat_ms=heartbeat_ms,
        housekeeping_ms=housekeeping_ms,
        bytes_per_second=bytes_per_second,
        ack_flushed=ack_flushed,
    )
    ids = _ids(members)
    with _prepared() as teller, opened(path, config, read_only=False) as store:
        replica = replication.Master(
            store,
            listen=listen,
            epoch=epoch,
            others_asked=others_asked,
            allow_epoch_jump=allow_epoch_jump,
            members=ids,
            set_epoch=set_epoch,
            broker_id=broker_id,
            protocol=protocol,
            quorum=quorum,
            mode=Mode.ACTING_MASTER if acting_master else Mode.PLAIN,
            options=options,
            allow=tuple(allow or ()),
        )
        traffic: Traffic | None = None

        def is_over() -> bool:
            if take_proposals:
                _take_proposals(replica)
            return once and (traffic is None or traffic.is_over) and _is_copied(replica, in_sync)

        try:
            if put is not None:
                copies = max(in_sync, len(ids) if all_ack else 1)
                is_replicated = copies > 1 or all_ack
                traffic = Traffic(
                    store,
                    total=put,
                    size_bytes=size,
                    topic=topic,
                    rate=rate,
                    durability=Durability.REPLICATED if is_replicated else Durability.MEMORY,
                    ready=lambda seconds: replica.wait_in_sync(copies, timeout=seconds),
                )
            return _watch(replica, traffic, StatusPrinter(as_json=json), teller, interval, is_over)
        finally:
            # A put that waits for copies ends with the role.
            if traffic is not None:
                traffic.stop()
            replica.close()
            if traffic is not None:
                traffic.join()


@app.command("slave", epilog=EXIT_CODES)
@command
def slave(
    path: StorePath,
    master: Annotated[
        str, typer.Option("--master", metavar="HOST:PORT", help="The master's HA port.")
    ],
    epoch: MasterEpochOption = None,
    allow_epoch_jump: JumpOption = False,
    broker_id: BrokerIdOption = None,
    protocol: ProtocolOption = "autoswitch",
    learner: Annotated[
        bool, typer.Option("--learner", help="asyncLearner: copy, and never count.")
    ] = False,
    sync_from_last_file: Annotated[
        bool,
        typer.Option("--sync-from-last-file", help="Empty: begin at the master's last log file."),
    ] = False,
    begin_anew: Annotated[
        bool,
        typer.Option(
            "--begin-anew",
            help="Give up a log that ends before the master's first byte. Default: halt.",
        ),
    ] = False,
    ack_flushed: Annotated[
        bool, typer.Option("--ack-flushed", help="Acknowledge only what is on the disk.")
    ] = False,
    heartbeat_ms: HeartbeatOption = _OPTIONS.heartbeat_ms,
    housekeeping_ms: HousekeepingOption = _OPTIONS.housekeeping_ms,
    reconnect_ms: Annotated[
        int, typer.Option("--reconnect-ms", min=0, help="Wait so long after a failure.")
    ] = _OPTIONS.reconnect_ms,
    once: OnceOption = False,
    interval: IntervalOption = 1.0,
    json: JsonOption = False,
    config: ConfigOption = None,
) -> ExitCode:
    """Be slave: copy the master's log, byte for byte.

    What this log has and the master's lacks is copied to PATH/cut/ and cut off; where that cannot
    be told from epochs and bytes, nothing is touched and the slave halts.
    """
    options = HaOptions(
        heartbeat_ms=heartbeat_ms,
        housekeeping_ms=housekeeping_ms,
        reconnect_ms=reconnect_ms,
        ack_flushed=ack_flushed,
    )
    with (
        _prepared() as teller,
        opened(path, config, read_only=False) as store,
        replication.Slave(
            store,
            master=master,
            epoch=epoch,
            begin_anew=begin_anew,
            allow_epoch_jump=allow_epoch_jump,
            broker_id=broker_id,
            protocol=protocol,
            is_learner=learner,
            sync_from_last_file=sync_from_last_file,
            options=options,
        ) as replica,
    ):
        return _watch(
            replica,
            None,
            StatusPrinter(as_json=json),
            teller,
            interval,
            lambda: once and has_caught_up(replica.status()),
        )


class _Teller(logging.Handler):
    """Prints what replication warns of as any other line on stderr."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.last = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.last = record.getMessage()
        tell(self.last)


@contextmanager
def _prepared() -> Iterator[_Teller]:
    """Keeps the signals that end the command for `_watch` to take, and prints warnings.

    Threads made meanwhile hold the signals back as well. A handler would run amid whatever the main
    thread does.
    """
    teller, log = _Teller(), logging.getLogger("rmqstore")
    log.addHandler(teller)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        yield teller
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        log.removeHandler(teller)


def _watch(
    replica: ReplicatedStore,
    traffic: Traffic | None,
    printer: StatusPrinter,
    teller: _Teller,
    interval: float,
    is_over: Callable[[], bool],
) -> ExitCode:
    """Shows the status until a signal comes, the role ends, or *is_over*."""
    look_at = time.monotonic()
    is_last = False
    while True:
        status = replica.status()
        reason = status.failure or (status.master.halted_reason if status.master else None)
        is_last = is_last or reason is not None or is_over()
        if is_last or time.monotonic() >= look_at:
            printer.show(replica.status(), traffic.counts if traffic else None)
            look_at = max(look_at + interval, time.monotonic())
        if traffic is not None and traffic.failure is not None:
            raise traffic.failure
        if reason is not None:
            if reason not in teller.last:
                tell(reason)
            return ExitCode.FAILED
        if is_last:
            return ExitCode.OK
        wait = min(max(look_at - time.monotonic(), 0.0), _LOOK_SECONDS)
        is_last = signal.sigtimedwait(_SIGNALS, wait) is not None


def _is_copied(replica: ReplicatedStore, copies: int) -> bool:
    try:
        replica.wait_in_sync(copies, timeout=0)
    except StoreTimeout:
        return False
    return True


def _take_proposals(replica: ReplicatedStore) -> None:
    # Any one voids the others of its set epoch; the last one is what is wished for.
    for each in replica.proposals[-1:]:
        replica.set_sync_state_set(each.members, each.set_epoch + 1)


def _ids(text: str | None) -> tuple[int, ...]:
    if text is None:
        return ()
    try:
        return tuple(int(each) for each in text.split(","))
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no list of broker ids such as 1,2,3") from None
