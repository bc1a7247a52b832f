"""`replica`: one side of a replica group on a store directory, with live status."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from rmqstore import replication
from rmqstore.cli.errors import EXIT_CODES, ExitCode, command, opened, print_error, settings_of
from rmqstore.cli.options import ConfigOption, JsonOption, StorePath, setting
from rmqstore.cli.replica_status import StatusPrinter
from rmqstore.measure.traffic import Traffic
from rmqstore.message import Durability
from rmqstore.net.process import ending_signals
from rmqstore.replication import HaOptions, Quorum
from rmqstore.replication.watch import accept_last_proposal, has_caught_up, is_copied, watch

if TYPE_CHECKING:
    from rmqstore.replication import ReplicatedStore, Status

__all__ = ["app"]

app = typer.Typer(
    help=(
        "Run one replica of a group, with live status: a line each second on a terminal, "
        "elsewhere a line for each change. PATH is created if it does not exist.\n\n"
        "Ends cleanly, with exit code 0, at Ctrl-C, SIGTERM and SIGHUP; with 4 when the role ended "
        "without a request, or a slave halted and needs an operator."
    ),
    epilog=EXIT_CODES,
    no_args_is_help=True,
)

EpochOption = Annotated[
    int | None,
    typer.Option(
        "--epoch",
        min=0,
        help=(
            "Epoch to lead in, above every earlier one. Default: 1 for a store without other "
            "replicas, the same epoch after a clean end. Required for any other store."
        ),
    ),
]
MasterEpochOption = Annotated[
    int | None,
    typer.Option(
        "--epoch",
        min=0,
        help="Epoch of the master. It is stored, and masters of older epochs are refused.",
    ),
]
OthersAskedOption = Annotated[
    bool,
    typer.Option(
        "--others-asked",
        help=(
            "Statement that the other replicas were compared and this replica is to be promoted. "
            "Required, with --epoch, for a master that did not end cleanly."
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
    typer.Option("--broker-id", min=0, help="Default: the id in the store. Auto-switch only."),
]
ProtocolOption = Annotated[
    Literal["autoswitch", "classic"],
    typer.Option("--protocol", help="RocketMQ's protocol: with epochs, or that of older releases."),
]
IntervalOption = Annotated[
    float,
    typer.Option("--interval", metavar="SECONDS", min=0.1, help="Time between two status checks."),
]
OnceOption = Annotated[bool, typer.Option("--once", help="End when the whole log is copied.")]
HeartbeatOption = Annotated[
    int | None, setting("ha_send_heartbeat_interval_ms", "--heartbeat-ms", metavar="MS")
]
HousekeepingOption = Annotated[
    int | None, setting("ha_housekeeping_interval_ms", "--housekeeping-ms", metavar="MS")
]
_OPTIONS = HaOptions()


@app.command("master", epilog=EXIT_CODES)
@command
def master(
    path: StorePath,
    listen: Annotated[
        str | None,
        typer.Option(
            "--listen",
            metavar="HOST[:PORT]",
            help="Address that slaves connect to. Port 0: any free port. Default: brokerIP2, else "
            "brokerIP1, and haListenPort; 127.0.0.1:10912 if no file sets them.",
        ),
    ] = None,
    epoch: EpochOption = None,
    others_asked: OthersAskedOption = False,
    allow_epoch_jump: JumpOption = False,
    broker_id: BrokerIdOption = None,
    protocol: ProtocolOption = "autoswitch",
    in_sync: Annotated[int | None, setting("in_sync_replicas", "--in-sync")] = None,
    min_in_sync: Annotated[int | None, setting("min_in_sync_replicas", "--min-in-sync")] = None,
    total: Annotated[int | None, setting("total_replicas", "--total")] = None,
    auto_in_sync: Annotated[
        bool | None, setting("auto_in_sync_replicas", "--auto-in-sync/--no-auto-in-sync")
    ] = None,
    all_ack: Annotated[
        bool | None, setting("all_ack_in_sync_state_set", "--all-ack/--no-all-ack")
    ] = None,
    timeout_ms: Annotated[
        int | None, setting("slave_timeout_ms", "--timeout-ms", metavar="MS")
    ] = None,
    gap_bytes: Annotated[
        int | None, setting("ha_gap_bytes_max", "--gap-bytes", metavar="BYTES")
    ] = None,
    lag_ms: Annotated[int | None, setting("ha_lag_ms_max", "--lag-ms", metavar="MS")] = None,
    acting_master: Annotated[
        bool | None, setting("acting_master_enable", "--acting-master/--no-acting-master")
    ] = None,
    controller_mode: Annotated[
        bool | None, setting("controller_mode_enable", "--controller-mode/--no-controller-mode")
    ] = None,
    members: Annotated[
        str | None,
        typer.Option(metavar="ID,ID,...", help="The sync-state set, including this broker's id."),
    ] = None,
    set_epoch: Annotated[int, typer.Option("--set-epoch", min=0, help="The set's version.")] = 0,
    take_proposals: Annotated[
        bool,
        typer.Option(
            "--take-proposals",
            help="Accept each proposed change of the set. Only without a controller.",
        ),
    ] = False,
    allow: Annotated[
        list[str] | None,
        typer.Option(metavar="NETWORK", help="Network of allowed slaves; may be repeated."),
    ] = None,
    batch_bytes: Annotated[
        int | None, setting("ha_transfer_batch_bytes", "--batch-bytes", metavar="BYTES")
    ] = None,
    heartbeat_ms: HeartbeatOption = None,
    housekeeping_ms: HousekeepingOption = None,
    bytes_per_second: Annotated[
        int | None,
        typer.Option(
            metavar="BYTES",
            min=0,
            help="Rate of the connection to each slave; 0 for no limit. File: "
            "maxHaTransferByteInSecond, with haFlowControlEnable. Default: 0.",
        ),
    ] = None,
    ack_flushed: Annotated[
        bool | None,
        typer.Option(
            "--ack-flushed/--no-ack-flushed",
            help="The master's own copy counts once it is on the disk. Default: with SYNC_FLUSH.",
        ),
    ] = None,
    put: Annotated[
        int | None,
        typer.Option("--put", metavar="N", min=0, help="Put N messages; 0: until the end."),
    ] = None,
    size: Annotated[
        int, typer.Option("--size", metavar="BYTES", min=1, help="Size of each body.")
    ] = 1024,
    rate: Annotated[
        int, typer.Option("--rate", min=0, help="Messages put a second; 0: no limit.")
    ] = 0,
    topic: Annotated[
        str, typer.Option("--topic", "-t", help="Topic of these messages.")
    ] = "traffic",
    once: OnceOption = False,
    interval: IntervalOption = 1.0,
    json: JsonOption = False,
    config: ConfigOption = None,
) -> ExitCode:
    """Run a master: accept puts and serve slaves.

    With --put it puts numbered messages of its own, once enough replicas for these puts are
    connected.

    The first start and a start after a clean end need no epoch. A master that was killed, or whose
    machine lost power, is refused: it may lack messages that its slaves acknowledged. Compare the
    slaves, then promote the right replica with --epoch (and --others-asked, if it is this one).
    """
    ids = _ids(members)
    if acting_master and controller_mode is None:
        controller_mode = False
    flags = _given(
        in_sync_replicas=in_sync,
        min_in_sync_replicas=min_in_sync,
        total_replicas=total,
        auto_in_sync_replicas=auto_in_sync,
        all_ack_in_sync_state_set=all_ack,
        slave_timeout_ms=timeout_ms,
        ha_gap_bytes_max=gap_bytes,
        ha_lag_ms_max=lag_ms,
        acting_master_enable=acting_master,
        controller_mode_enable=controller_mode,
        ha_transfer_batch_bytes=batch_bytes,
        ha_send_heartbeat_interval_ms=heartbeat_ms,
        ha_housekeeping_interval_ms=housekeeping_ms,
        ha_flow_control_enable=None if bytes_per_second is None else bytes_per_second > 0,
        ha_transfer_bytes_per_second_max=bytes_per_second or None,
    )
    with _prepared() as warnings, opened(path, config, read_only=False, **flags) as store:
        quorum = Quorum.from_config(store.replica_config)
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
            options=HaOptions.from_config(store.replica_config, ack_flushed=ack_flushed),
            allow=tuple(allow or ()),
        )
        traffic: Traffic | None = None

        def is_over() -> bool:
            if traffic is not None and traffic.failure is not None:
                raise traffic.failure
            if take_proposals:
                accept_last_proposal(replica)
            return (
                once and (traffic is None or traffic.is_over) and is_copied(replica, quorum.in_sync)
            )

        try:
            if put is not None:
                copies = max(quorum.in_sync, len(ids) if quorum.all_ack else 1)
                is_replicated = copies > 1 or quorum.all_ack
                traffic = Traffic(
                    store,
                    total=put,
                    size_bytes=size,
                    topic=topic,
                    rate=rate,
                    durability=Durability.REPLICATED if is_replicated else Durability.MEMORY,
                    ready=lambda seconds: replica.wait_in_sync(copies, timeout=seconds),
                )
            printer = StatusPrinter(as_json=json, counts=traffic.counts if traffic else None)
            return _watch(replica, printer.show, warnings, interval, is_over)
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
        str | None,
        typer.Option(
            "--master", metavar="HOST:PORT", help="The master's HA port. File: haMasterAddress."
        ),
    ] = None,
    epoch: MasterEpochOption = None,
    allow_epoch_jump: JumpOption = False,
    broker_id: BrokerIdOption = None,
    protocol: ProtocolOption = "autoswitch",
    learner: Annotated[bool | None, setting("async_learner", "--learner/--no-learner")] = None,
    sync_from_last_file: Annotated[
        bool | None,
        setting("sync_from_last_file", "--sync-from-last-file/--no-sync-from-last-file"),
    ] = None,
    begin_anew: Annotated[
        bool,
        typer.Option(
            "--begin-anew",
            help="Give up a log that ends before the master's first byte. Default: halt.",
        ),
    ] = False,
    ack_flushed: Annotated[
        bool | None,
        typer.Option(
            "--ack-flushed/--no-ack-flushed",
            help="Acknowledge only bytes on the disk. Default: with SYNC_FLUSH.",
        ),
    ] = None,
    heartbeat_ms: HeartbeatOption = None,
    housekeeping_ms: HousekeepingOption = None,
    reconnect_ms: Annotated[
        int, typer.Option("--reconnect-ms", min=0, help="Wait after a failure.")
    ] = _OPTIONS.reconnect_ms,
    once: OnceOption = False,
    interval: IntervalOption = 1.0,
    json: JsonOption = False,
    config: ConfigOption = None,
) -> ExitCode:
    """Run a slave: copy the master's log, byte for byte.

    Records that the master's log lacks are copied to PATH/cut/ and cut off. If they cannot be
    determined from epochs and bytes, the log is left unchanged and the slave halts.
    """
    flags = _given(
        async_learner=learner,
        sync_from_last_file=sync_from_last_file,
        ha_send_heartbeat_interval_ms=heartbeat_ms,
        ha_housekeeping_interval_ms=housekeeping_ms,
    )
    with _prepared() as warnings:
        configuration = settings_of(config)
        if not (master or (configuration and configuration.replica.ha_master_address)):
            raise typer.BadParameter(
                "the master is missing; give --master, or --config with haMasterAddress"
            )
        with (
            opened(path, configuration, read_only=False, **flags) as store,
            replication.Slave(
                store,
                master=master,
                epoch=epoch,
                begin_anew=begin_anew,
                allow_epoch_jump=allow_epoch_jump,
                broker_id=broker_id,
                protocol=protocol,
                options=HaOptions.from_config(
                    store.replica_config, reconnect_ms=reconnect_ms, ack_flushed=ack_flushed
                ),
            ) as replica,
        ):
            return _watch(
                replica,
                StatusPrinter(as_json=json, counts=None).show,
                warnings,
                interval,
                lambda: once and has_caught_up(replica.status()),
            )


class _WarningPrinter(logging.Handler):
    """Prints the warnings of replication as lines on stderr."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.last = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.last = record.getMessage()
        print_error(self.last)


@contextmanager
def _prepared() -> Iterator[_WarningPrinter]:
    """Blocks the signals that end the command, so that `_watch` receives them, and prints warnings.

    Threads that start in this block inherit the mask. A signal handler would interrupt the main
    thread at any point.
    """
    warnings, log = _WarningPrinter(), logging.getLogger("rmqstore")
    log.addHandler(warnings)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ending_signals())
    try:
        yield warnings
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        log.removeHandler(warnings)


def _watch(
    replica: ReplicatedStore,
    show: Callable[[Status], object],
    warnings: _WarningPrinter,
    interval: float,
    is_over: Callable[[], bool],
) -> ExitCode:
    """Shows the status until a signal arrives, the role ends, or *is_over*."""
    reason = watch(
        replica,
        show=show,
        interval=interval,
        is_over=is_over,
        is_stopped=lambda seconds: signal.sigtimedwait(ending_signals(), seconds) is not None,
    )
    if reason is None:
        return ExitCode.OK
    if reason not in warnings.last:
        print_error(reason)
    return ExitCode.FAILED


def _given(**flags: int | None) -> dict[str, int]:
    """Returns the settings whose flags were given; they override the configuration."""
    return {name: value for name, value in flags.items() if value is not None}


def _ids(text: str | None) -> tuple[int, ...]:
    if text is None:
        return ()
    try:
        return tuple(int(each) for each in text.split(","))
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is not a list of broker ids; give numbers such as 1,2,3"
        ) from None
