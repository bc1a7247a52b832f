"""`serve`: servers of a cluster, from RocketMQ's own configuration files."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from rmqstore.broker.node import Broker
from rmqstore.cli.errors import EXIT_CODES, CannotOpenError, ExitCode, command, text_of
from rmqstore.cli.tls_options import TlsFileOption, TlsKeyOption, tls_config
from rmqstore.config import BrokerConfig, ControllerConfig, MetricsExporter, NameserverConfig
from rmqstore.controller.server import Controller
from rmqstore.errors import ArgumentError, ConfigError, MissingExtraError, StoreError
from rmqstore.nameserver.server import Nameserver
from rmqstore.net.addresses import format_address
from rmqstore.net.process import run_until_signal
from rmqstore.net.tls import TlsClient, TlsServer

__all__ = ["app"]

_log = logging.getLogger("rmqstore.serve")

app = typer.Typer(
    help=(
        "Run a server of a cluster until Ctrl-C, SIGTERM or SIGHUP, with RocketMQ's own file. Logs "
        "go to stderr; the first line on stdout is its address, printed once it serves."
    ),
    epilog=EXIT_CODES,
    no_args_is_help=True,
)

ServerConfigOption = Annotated[
    Path | None,
    typer.Option(
        "-c",
        "--config",
        metavar="FILE",
        help="RocketMQ's file of this server. Default: RocketMQ's defaults.",
        exists=True,
        dir_okay=False,
    ),
]
PortOption = Annotated[
    int | None,
    typer.Option("--port", min=0, max=65535, help="Port instead of listenPort; 0: any free port."),
]
ReadyOption = Annotated[
    int | None,
    typer.Option(
        "--ready-fd",
        metavar="FD",
        min=0,
        help="Inherited descriptor that receives the line of stdout once the server serves.",
    ),
]
MetricsPortOption = Annotated[
    int | None,
    typer.Option(
        "--metrics-port",
        min=0,
        max=65535,
        help="Port that serves metrics to Prometheus, instead of metricsExporterType and "
        "metricsPromExporterPort; 0: any free port.",
    ),
]
LogLevelOption = Annotated[
    str, typer.Option("--log-level", metavar="LEVEL", help="Lowest log level. Default: INFO.")
]


@app.command("namesrv", epilog=EXIT_CODES)
@command
def namesrv(
    config: ServerConfigOption = None,
    listen_port: PortOption = None,
    ready_fd: ReadyOption = None,
    metrics_port: MetricsPortOption = None,
    tls_file: TlsFileOption = None,
    tls_keys: TlsKeyOption = None,
    log_level: LogLevelOption = "INFO",
) -> ExitCode:
    """Run a nameserver: brokers register there, clients request routes.

    Every key of RocketMQ's namesrv.conf is read. Keys without an effect here are listed once; a
    misspelt key ends the start, and the message names the key that was meant. With
    enableControllerInNamesrv=true a controller runs in the same process, on the port of its own
    node in controllerDLegerPeers.
    """
    _log_to_stderr(log_level)
    settings = NameserverConfig() if config is None else NameserverConfig.from_properties(config)
    if listen_port is not None:
        settings = settings.replace(listen_port=listen_port)
    settings = settings.replace(**_metrics(metrics_port))
    tls = _tls(tls_file, tls_keys)
    if not settings.controller_in_namesrv or config is None:
        return _serve(Nameserver(settings, config_file=config, **tls), "namesrv", ready_fd)
    beside = ControllerConfig.from_properties(config, beside=NameserverConfig.options())
    if not beside.nodes:
        raise ConfigError(
            ["controllerDLegerPeers is empty, but listenPort is the nameserver's; name a node"],
            source=str(config),
        )
    beside = beside.replace(**_metrics(metrics_port))
    # The only metrics port serves the controller's metrics, as in RocketMQ.
    settings = settings.replace(metrics_exporter=MetricsExporter.DISABLE)
    nameserver = Nameserver(settings, config_file=config, **tls)
    both = _together(nameserver, Controller(beside, config_file=config, **tls))
    return _serve(both, "namesrv", ready_fd)


@app.command("controller", epilog=EXIT_CODES)
@command
def controller(
    config: ServerConfigOption = None,
    listen_port: Annotated[
        int | None,
        typer.Option(
            "--port",
            min=0,
            max=65535,
            help="Port instead of listenPort, without peers; 0: any free port.",
        ),
    ] = None,
    store: Annotated[
        Path | None,
        typer.Option("--store", metavar="DIR", help="Directory instead of controllerStorePath."),
    ] = None,
    ready_fd: ReadyOption = None,
    metrics_port: MetricsPortOption = None,
    tls_file: TlsFileOption = None,
    tls_keys: TlsKeyOption = None,
    log_level: LogLevelOption = "INFO",
) -> ExitCode:
    """Run a controller: it assigns ids to brokers and elects their masters.

    Every key of RocketMQ's controller.conf is read. Keys without an effect here are listed once; a
    misspelt key ends the start, and the message names the key that was meant.
    """
    _log_to_stderr(log_level)
    settings = ControllerConfig() if config is None else ControllerConfig.from_properties(config)
    if listen_port is not None:
        settings = settings.replace(listen_port=listen_port)
    if store is not None:
        settings = settings.replace(store_path=str(store))
    settings = settings.replace(**_metrics(metrics_port))
    tls = _tls(tls_file, tls_keys)
    return _serve(Controller(settings, config_file=config, **tls), "controller", ready_fd)


@app.command("broker", epilog=EXIT_CODES)
@command
def broker(
    config: ServerConfigOption = None,
    listen_port: PortOption = None,
    store: Annotated[
        Path | None,
        typer.Option("--store", metavar="DIR", help="Directory instead of storePathRootDir."),
    ] = None,
    ready_fd: ReadyOption = None,
    metrics_port: MetricsPortOption = None,
    tls_file: TlsFileOption = None,
    tls_keys: TlsKeyOption = None,
    log_level: LogLevelOption = "INFO",
) -> ExitCode:
    """Run a broker: it stores the messages of clients, alone or with replicas.

    Every key of RocketMQ's broker.conf is read. Keys without an effect here are listed once; a
    misspelt key ends the start, and the message names the key that was meant. A file without
    storePathRootDir has its store in ~/store, as in RocketMQ.
    """
    _log_to_stderr(log_level)
    settings = BrokerConfig() if config is None else BrokerConfig.from_properties(config)
    if listen_port is not None:
        settings = settings.replace(listen_port=listen_port)
    if config is not None and store is None and not settings.store.root_path:
        store = Path.home() / "store"
        _log.info("storePathRootDir is empty: the store is %s, as in RocketMQ", store)
    if store is not None:
        settings = settings.replace(root_path=str(store))
    settings = settings.replace(**_metrics(metrics_port))
    tls = _tls(tls_file, tls_keys)
    return _serve(Broker(settings, config_file=config, **tls), "broker", ready_fd)


@app.command("standalone", epilog=EXIT_CODES)
@command
def standalone(
    directory: Annotated[
        Path | None,
        typer.Argument(
            metavar="[DIR]",
            help="Directory of all files. Default: rmqstore-data, and storePathRootDir for "
            "messages.",
        ),
    ] = None,
    config: ServerConfigOption = None,
    host: Annotated[
        str | None,
        typer.Option(
            "--host",
            metavar="ADDRESS",
            help="Address of both to listen at, instead of bindAddress; 0.0.0.0: all of this "
            "machine. Default: 127.0.0.1.",
        ),
    ] = None,
    listen_port: Annotated[
        int,
        typer.Option(
            "--port",
            min=0,
            max=65535,
            help="Port of the nameserver, which clients connect to first; 0: any free port. "
            "Default: 9876.",
        ),
    ] = 9876,
    broker_port: Annotated[
        int | None,
        typer.Option(
            "--broker-port",
            min=0,
            max=65535,
            help="Port of the broker, instead of listenPort; the port for slaves is one above; 0: "
            "any free ports. Default: 10911.",
        ),
    ] = None,
    ready_fd: ReadyOption = None,
    metrics_port: MetricsPortOption = None,
    tls_file: TlsFileOption = None,
    tls_keys: TlsKeyOption = None,
    log_level: LogLevelOption = "INFO",
) -> ExitCode:
    """Run a nameserver and a broker in this process, without a configuration file.

    The line on stdout has the address for clients, which is the nameserver's, and the broker's
    address. A broker.conf (-c) sets everything that the options do not set. The broker also
    registers at the nameservers that the file names. Metrics are those of the broker.
    """
    _log_to_stderr(log_level)
    place = directory or Path("rmqstore-data")
    given = {"bind_address": "127.0.0.1", "root_path": str(place / "store")}
    settings = BrokerConfig.from_properties("" if config is None else config, defaults=given)
    if directory is not None:
        settings = settings.replace(root_path=given["root_path"])
    if host is not None:
        settings = settings.replace(bind_address=host)
    if broker_port is not None:
        slaves_port = broker_port + 1 if broker_port else 0
        settings = settings.replace(listen_port=broker_port, ha_listen_port=slaves_port)
    settings = settings.replace(**_metrics(metrics_port))
    nameserver = NameserverConfig(
        bind_address=settings.bind_address,
        listen_port=listen_port,
        kv_config_path=str(place / "namesrv" / "kvConfig.json"),
    )
    both = _standalone(nameserver, settings, config, **_tls(tls_file, tls_keys))
    return _serve(both, "standalone", ready_fd, _both_addresses)


def _metrics(port: int | None) -> dict[str, Any]:
    """Returns the settings that the option for metrics changes."""
    if port is None:
        return {}
    return {"metrics_exporter": MetricsExporter.PROM, "metrics_port": port}


def _tls(file: Path | None, pairs: list[str] | None) -> dict[str, Any]:
    """Returns the arguments of a server for its TLS."""
    config = tls_config(file, pairs)
    return {"tls": TlsServer.from_config(config), "client_tls": TlsClient.from_config(config)}


@asynccontextmanager
async def _together(nameserver: Nameserver, controller: Controller) -> AsyncIterator[Nameserver]:
    """Runs a nameserver and a controller as one service."""
    async with controller, nameserver:
        yield nameserver


_LOOPBACKS = {"0.0.0.0": "127.0.0.1", "::": "::1"}


class _Standalone(NamedTuple):
    nameserver: Nameserver
    broker: Broker


@asynccontextmanager
async def _standalone(
    nameserver_config: NameserverConfig, config: BrokerConfig, file: Path | None, **tls: Any
) -> AsyncIterator[_Standalone]:
    """Runs a nameserver and a broker that registers there, and at the nameservers of its *file*."""
    async with Nameserver(nameserver_config, **tls) as nameserver:
        host, port = nameserver.address
        # A nameserver that listens at all addresses is reached at the loopback address.
        place = format_address((_LOOPBACKS.get(host, host), port))
        config = config.replace(nameservers=(place, *config.nameservers))
        async with Broker(config, config_file=file, **tls) as broker:
            await broker.registered()
            yield _Standalone(nameserver, broker)


def _address(entered: Any) -> str:
    return format_address(entered.address)


def _both_addresses(entered: _Standalone) -> str:
    return f"{_address(entered.nameserver)}, with its broker at {_address(entered.broker)}"


def _serve(
    service: AbstractAsyncContextManager[Any],
    name: str,
    ready_fd: int | None,
    address: Callable[[Any], str] = _address,
) -> ExitCode:
    """Runs a service that has an address."""

    def ready_line(entered: Any) -> str:
        return f"rmqstore {name} serves at {address(entered)}"

    def announce(line: str) -> None:
        print(line, flush=True)

    opened = _opened(service)
    asyncio.run(run_until_signal(opened, ready_line, announce=announce, ready_fd=ready_fd))
    return ExitCode.OK


@asynccontextmanager
async def _opened(service: AbstractAsyncContextManager[Any]) -> AsyncIterator[Any]:
    """Runs *service*. What it cannot open ends the command with CANNOT_OPEN; wrong settings are
    wrong usage."""
    async with AsyncExitStack() as stack:
        try:
            entered = await stack.enter_async_context(service)
        except (ArgumentError, ConfigError, MissingExtraError):
            raise
        except (StoreError, OSError) as error:
            raise CannotOpenError(text_of(error)) from error
        yield entered


def _log_to_stderr(level: str) -> None:
    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        raise typer.BadParameter(f"{level!r} is not a level; use DEBUG, INFO, WARNING or ERROR")
    logging.basicConfig(level=number, format="%(asctime)s %(levelname)s %(name)s %(message)s")
