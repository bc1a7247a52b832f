"""Configurations that requests change: written to configStorePath, and read again at a start."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqstore.broker.node import Broker
from rmqstore.config import parse_properties
from rmqstore.controller.server import Controller
from rmqstore.errors import ConfigError, DiskError
from rmqstore.nameserver.server import Nameserver
from rmqstore.remoting.client import RemotingClient
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.frames import Frame
from tests.support.brokers import broker_config
from tests.support.loops import on_loop
from tests.support.waiting import WAIT_S

Server = Broker | Nameserver | Controller


class Case:
    """A kind of server with a file, and a change of it by request."""

    def __init__(
        self,
        make: Callable[[Path], Server],
        text: Callable[[Path], str],
        code: int,
        change: tuple[str, str],
        has_change: Callable[[Server], bool],
    ) -> None:
        self._make = make
        self._text = text
        self.code = code
        self.change = change
        self.has_change = has_change

    def server(self, root: Path, store_path: Path | None) -> Server:
        """Return a server with a new file below *root*."""
        path = "" if store_path is None else f"configStorePath={store_path}\n"
        self.file(root).write_text(f"{self._text(root)}{path}")
        return self._make(self.file(root))

    @staticmethod
    def file(root: Path) -> Path:
        return root / "server.conf"


LOCAL = "bindAddress=127.0.0.1\nlistenPort=0\n"
BROKER = Case(
    Broker.from_file,
    lambda root: broker_config(root / "store").to_properties(),
    RequestCode.UPDATE_BROKER_CONFIG,
    ("brokerPermission", "4"),
    lambda server: isinstance(server, Broker) and server.config.permission == 4,
)
NAMESERVER = Case(
    Nameserver.from_file,
    lambda root: LOCAL,
    RequestCode.UPDATE_NAMESRV_CONFIG,
    ("supportActingMaster", "true"),
    lambda server: isinstance(server, Nameserver) and server.table.options.acting_master,
)
CONTROLLER = Case(
    Controller.from_file,
    lambda root: f"{LOCAL}controllerStorePath={root / 'log'}\n",
    RequestCode.UPDATE_CONTROLLER_CONFIG,
    ("enableElectUncleanMaster", "true"),
    lambda server: isinstance(server, Controller) and server.config.elect_unclean_master,
)
of_every_kind = pytest.mark.parametrize(
    "case", [BROKER, NAMESERVER, CONTROLLER], ids=["broker", "nameserver", "controller"]
)


async def changed(case: Case, server: Server) -> Frame:
    """Return the answer to the request for the change."""
    key, value = case.change
    async with RemotingClient() as client:
        request = Frame.request(case.code, {}, f"{key}={value}\n".encode())
        return await client.call(server.address, request, timeout=WAIT_S)


@of_every_kind
@on_loop
async def test_a_change_is_in_config_store_path_and_holds_after_a_start(
    case: Case, tmp_path: Path
) -> None:
    stored = tmp_path / "state" / "changes.properties"
    async with case.server(tmp_path, stored) as server:
        written = case.file(tmp_path).read_text()
        assert not case.has_change(server)
        assert (await changed(case, server)).code == ResponseCode.SUCCESS
    assert parse_properties(stored.read_text()) == dict([case.change])
    assert case.file(tmp_path).read_text() == written

    async with case.server(tmp_path, stored) as server:
        assert case.has_change(server)


@of_every_kind
@on_loop
async def test_keys_that_only_the_file_of_the_server_sets_are_not_taken_from_there(
    case: Case, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stored = tmp_path / "changes.properties"
    key, value = case.change
    stored.write_text(f"listenPort=1\n{key}={value}\nunknownKey=1\nconfigStorePath=/nowhere\n")
    with caplog.at_level("INFO", logger="rmqstore"):
        async with case.server(tmp_path, stored) as server:
            assert case.has_change(server)
            assert server.address[1] > 1
            assert server.config.config_store_path == str(stored)
    assert f"{stored}: changed by requests: {key}" in caplog.messages


@of_every_kind
@on_loop
async def test_wrong_changes_end_the_start_with_their_file(case: Case, tmp_path: Path) -> None:
    stored = tmp_path / "changes.properties"
    stored.write_text(f"{case.change[0]}=x\n")
    with pytest.raises(ConfigError, match=case.change[0]) as caught:
        async with case.server(tmp_path, stored):
            pass
    assert caught.value.source == str(stored)


@of_every_kind
@on_loop
async def test_a_file_that_may_not_be_written_refuses_the_change_and_names_the_cure(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise DiskError(errno.EROFS, "Read-only file system")

    async with case.server(tmp_path, None) as server:
        monkeypatch.setattr("rmqstore.store.server_files.replace_small_file", refuse)
        answer = await changed(case, server)
        assert not case.has_change(server)
    assert answer.code != ResponseCode.SUCCESS
    assert answer.remark is not None
    assert "the configuration is unchanged" in answer.remark
    assert f"{case.file(tmp_path)} cannot be written: Read-only file system" in answer.remark
    assert "set configStorePath to a file that the server may write" in answer.remark


@on_loop
async def test_a_change_keeps_the_first_key_of_a_file_with_a_byte_order_mark(
    tmp_path: Path,
) -> None:
    file = tmp_path / "namesrv.conf"
    file.write_bytes(f"\ufeff{LOCAL}".encode())
    async with Nameserver.from_file(file) as server:
        assert (await changed(NAMESERVER, server)).code == ResponseCode.SUCCESS
    assert parse_properties(file.read_text())["bindAddress"] == "127.0.0.1"
