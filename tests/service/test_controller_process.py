"""A controller as a process: ready, killed and started again, ended by a signal, refused."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from rmqstore.cli.errors import ExitCode
from rmqstore.remoting.client import RemotingClient
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.frames import Frame
from tests.service.server_processes import errors_until_signal, first_line, refusal, serving
from tests.support.effort import rounds
from tests.support.waiting import WAIT_S


def config_file(tmp_path: Path) -> Path:
    path = tmp_path / "controller.conf"
    path.write_text(
        "controllerDLegerGroup=group1\ncontrollerDLegerPeers=n7-127.0.0.1:0\n"
        "controllerDLegerSelfId=n7\nbindAddress=127.0.0.1\nmappedFileSize=1024\n"
        f"controllerStorePath={tmp_path}/log\nelectMasterMaxRetryCount=3\n"
    )
    return path


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_process_announces_its_address_and_ends_at_a_signal(
    number: signal.Signals, tmp_path: Path
) -> None:
    _, errors = errors_until_signal(number, "controller", "-c", str(config_file(tmp_path)))
    assert "[controller n7] started at 127.0.0.1:" in errors
    assert "[controller n7] closed" in errors
    assert "have no effect here: mappedFileSize, electMasterMaxRetryCount" in errors


def test_killed_controller_gives_no_id_twice(tmp_path: Path) -> None:
    given: list[int] = []
    kills = rounds(3, 50)
    for _ in range(kills):
        with serving("controller", "-c", str(config_file(tmp_path))) as process:
            address = first_line(process).split()[-1]
            given += asyncio.run(_register(address, 5))
    assert given == list(range(1, 5 * kills + 1))


async def _register(address: str, count: int) -> list[int]:
    """Register *count* brokers at a controller; return the ids that it gave."""
    names = {"clusterName": "c", "brokerName": "b"}
    found = []
    async with RemotingClient() as client:
        for _ in range(count):
            ask = Frame.request(RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, names)
            answer = await client.call(address, ask, timeout=WAIT_S)
            wanted = answer.raise_for_code().ext_fields["nextBrokerId"]
            fields = names | {"appliedBrokerId": wanted, "registerCheckCode": f"h:1;{wanted}"}
            apply = Frame.request(RequestCode.CONTROLLER_APPLY_BROKER_ID, fields)
            answer = await client.call(address, apply, timeout=WAIT_S)
            assert answer.code == ResponseCode.SUCCESS, answer.remark
            found.append(int(wanted))
    return found


def test_a_wrong_file_ends_the_process_with_all_its_mistakes(tmp_path: Path) -> None:
    path = tmp_path / "controller.conf"
    path.write_text("controllerDLegerPeers=n0\nenableElectUncleanMastr=true\n")
    errors = refusal("controller", "-c", str(path))
    assert "did you mean enableElectUncleanMaster?" in errors
    assert "is not a node" in errors

    errors = refusal("controller", "--port", "0")
    assert "controllerStorePath is empty" in errors


def test_a_damaged_log_ends_the_process_with_the_place(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "log").write_bytes(b"?" * 100)
    arguments = ("controller", "--store", str(tmp_path / "log"), "--port", "0")
    errors = refusal(*arguments, status=ExitCode.CANNOT_OPEN)
    assert "damaged at byte 0" in errors
    assert "restore the directory from a copy" in errors


def test_controller_runs_in_the_process_of_a_nameserver(tmp_path: Path) -> None:
    path = config_file(tmp_path)
    path.write_text(
        f"{path.read_text()}enableControllerInNamesrv=true\nlistenPort=0\nsupportActingMaster=true\n"
    )

    _, errors = errors_until_signal(signal.SIGTERM, "namesrv", "-c", str(path))
    assert "[controller n7] started at 127.0.0.1:" in errors
    assert errors.count("have no effect here: mappedFileSize, electMasterMaxRetryCount\n") == 1


def test_controller_in_a_nameserver_needs_a_port_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "namesrv.conf"
    path.write_text("enableControllerInNamesrv=true\nlistenPort=0\n")
    errors = refusal("namesrv", "-c", str(path))
    assert "listenPort is the nameserver's" in errors
