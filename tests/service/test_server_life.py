"""The life of server objects: one start and one close, and nothing that stays open."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import rmqstore
from rmqstore.broker.node import Broker
from rmqstore.config import ControllerConfig, NameserverConfig
from rmqstore.controller.server import Controller
from rmqstore.errors import ArgumentError, StoreClosedError
from rmqstore.nameserver.server import Nameserver
from rmqstore.net.addresses import Address
from rmqstore.net.opening import open_on_thread
from tests.support.brokers import broker_config
from tests.support.loops import on_loop

PLACE = {"bind_address": "127.0.0.1", "listen_port": 0}
Server = Broker | Controller | Nameserver


def _broker(path: Path) -> Broker:
    return Broker(broker_config(path))


def _controller(path: Path) -> Controller:
    return Controller(ControllerConfig(store_path=str(path), **PLACE))  # type: ignore[arg-type]


def _nameserver(path: Path) -> Nameserver:
    return Nameserver(NameserverConfig(**PLACE))  # type: ignore[arg-type]


every_server = pytest.mark.parametrize("make", [_broker, _controller, _nameserver])


def _is_open(place: Address) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(place, 5):
        return True
    return False


@every_server
@on_loop
async def test_server_is_entered_once(make: Callable[[Path], Server], tmp_path: Path) -> None:
    server = make(tmp_path)
    async with server:
        place = server.address
    with pytest.raises(ArgumentError, match="was started or closed before; make another one"):
        await server.start()
    assert not _is_open(place)
    # The directory is free.
    async with make(tmp_path):
        pass


@every_server
@on_loop
async def test_second_start_is_refused_and_the_first_continues(
    make: Callable[[Path], Server], tmp_path: Path
) -> None:
    async with make(tmp_path) as server:
        place = server.address
        with pytest.raises(ArgumentError, match="was started or closed before"):
            await server.start()
        assert server.address == place
        assert _is_open(place)
    assert not _is_open(place)


@every_server
@on_loop
async def test_closed_server_does_not_start(make: Callable[[Path], Server], tmp_path: Path) -> None:
    server = make(tmp_path)
    await server.close()
    with pytest.raises(ArgumentError, match="was started or closed before"):
        await server.start()


@every_server
@on_loop
async def test_close_during_the_start_leaves_nothing_open(
    make: Callable[[Path], Server], tmp_path: Path
) -> None:
    server = make(tmp_path)
    starting = asyncio.create_task(server.start())
    await asyncio.sleep(0)
    await server.close()
    await starting
    assert not _is_open(server.address)
    async with make(tmp_path):
        pass


@every_server
@on_loop
async def test_cancelled_start_leaves_nothing_open(
    make: Callable[[Path], Server], tmp_path: Path
) -> None:
    for turns in range(12):
        server = make(tmp_path)
        starting = asyncio.create_task(server.start())
        for _ in range(turns):
            await asyncio.sleep(0)
        starting.cancel()
        await asyncio.wait([starting])
        if not starting.cancelled():
            await server.close()
            break
        # The directory and its lock are free.
        async with make(tmp_path):
            pass


@every_server
@on_loop
async def test_server_that_is_not_started_has_no_address_or_state(
    make: Callable[[Path], Server], tmp_path: Path
) -> None:
    server = make(tmp_path)
    with pytest.raises(StoreClosedError, match="is not started; use `async with`"):
        _ = server.store if isinstance(server, Broker) else server.address
    if isinstance(server, Broker):
        with pytest.raises(StoreClosedError, match="is not started"):
            server.status()


@on_loop
async def test_broker_whose_metadata_is_damaged_leaves_no_thread(tmp_path: Path) -> None:
    async with _broker(tmp_path):
        pass
    for name in ("subscriptionGroup.json", "subscriptionGroup.json.bak"):
        (tmp_path / "config" / name).write_bytes(b"{")
    with pytest.raises(rmqstore.CorruptionError):
        await _broker(tmp_path).start()
    for thread in threading.enumerate():
        if thread.name == "rmqstore-broker-files":
            await asyncio.to_thread(thread.join, 10)
            assert not thread.is_alive()


@on_loop
async def test_opening_that_is_cancelled_closes_what_it_opened() -> None:
    begun, may_end = threading.Event(), threading.Event()
    closed: list[str] = []

    def make() -> str:
        begun.set()
        may_end.wait(10)
        return "opened"

    async def close(what: str) -> None:
        closed.append(what)

    opening = asyncio.create_task(open_on_thread(make, close))
    await asyncio.to_thread(begun.wait, 10)
    opening.cancel()
    await asyncio.sleep(0)
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert closed == ["opened"]
