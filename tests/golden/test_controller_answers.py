"""Requests of Java brokers and of mqadmin to a Java controller get the same answers from ours."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from rmqstore.config import ControllerConfig
from rmqstore.controller.server import Controller
from rmqstore.net.addresses import format_address
from rmqstore.remoting import fastjson
from rmqstore.remoting.client import RemotingClient
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.frames import Frame, FrameDecoder
from tests.golden.remoting import Exchange, exchanges

RECORDED = "127.0.0.2:41010"
"""The controller of the session."""
FIRST, SECOND = "127.0.0.2:41100", "127.0.0.2:41200"
"""Its brokers."""
CODES = {
    *range(RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, RequestCode.GET_BROKER_EPOCH_CACHE),
    RequestCode.UPDATE_CONTROLLER_CONFIG,
    RequestCode.CLEAN_BROKER_DATA,
    RequestCode.CONTROLLER_GET_NEXT_BROKER_ID,
    RequestCode.CONTROLLER_APPLY_BROKER_ID,
    RequestCode.BROKER_HEARTBEAT,
}


def _frame(data: bytes) -> Frame:
    [frame] = FrameDecoder().feed(data)
    return frame


def _session() -> list[Exchange]:
    """Return the exchanges with the controller in their order, without those that it refused for
    its load."""
    found = [
        each
        for each in exchanges("controller")
        if each.told.get("to") == "controller" and each.told["code"] in CODES
        if each.told.get("result") != ResponseCode.SYSTEM_BUSY
    ]
    return sorted(found, key=lambda each: each.told["ms"])


def _seen(frame: Frame, *, here: str = RECORDED) -> dict[str, Any]:
    return {
        "code": frame.code,
        "remark": frame.remark,
        "fields": {key: text.replace(here, RECORDED) for key, text in frame.ext_fields.items()},
        "body": fastjson.loads(frame.body) if frame.body else None,
    }


async def _play(directory: Path) -> tuple[list[int], list[str]]:
    config = ControllerConfig(
        group="peer-controller",
        bind_address="127.0.0.1",
        listen_port=0,
        store_path=str(directory),
        notify_role_changed=False,
    )
    played: list[int] = []
    wrong: list[str] = []
    async with Controller(config) as controller, RemotingClient() as client:
        here = format_address(controller.address)

        async def send(code: RequestCode, body: bytes = b"", **fields: str) -> Frame:
            return await client.call(here, Frame.request(code, fields, body))

        async def beat(broker_id: str, address: str) -> None:
            fields = {"clusterName": "PeerCluster", "brokerName": "broker-a", "epoch": "1"}
            fields |= {"brokerId": broker_id, "brokerAddr": address, "maxOffset": "100"}
            fields["heartbeatTimeoutMills"] = "600000"
            answer = await send(RequestCode.BROKER_HEARTBEAT, **fields)
            assert answer.code == ResponseCode.SUCCESS, answer.remark

        for exchange in _session():
            request = _frame(exchange.request)
            fields = request.ext_fields
            # What the recorder did not keep of the session.
            if request.code == RequestCode.CONTROLLER_REGISTER_BROKER and len(played) < 12:
                if fields["brokerId"] == "2" and controller.state.next_broker_id("broker-a") == 2:
                    applied = {"clusterName": "PeerCluster", "brokerName": "broker-a"}
                    code = f"{SECOND};1"
                    applied |= {"appliedBrokerId": "2", "registerCheckCode": code}
                    await send(RequestCode.CONTROLLER_APPLY_BROKER_ID, **applied)
                    await beat("1", FIRST)
            if request.code == RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET:
                if fields["masterEpoch"] == "1":
                    await beat("2", SECOND)
                else:
                    elect = {"clusterName": "PeerCluster", "brokerName": "broker-a"}
                    elect |= {"brokerId": "2", "designateElect": "true"}
                    answer = await send(RequestCode.CONTROLLER_ELECT_MASTER, **elect)
                    assert answer.ext_fields["masterEpoch"] == "2"
            if request.code == RequestCode.CLEAN_BROKER_DATA:
                controller.liveness.forget("broker-a", (1,))

            if exchange.response is None:
                await client.send_one_way(here, request)
            else:
                answer = await client.call(here, request)
                ours, theirs = _seen(answer, here=here), _seen(_frame(exchange.response))
                if ours != theirs:
                    wrong.append(f"{request.code} {fields}:\n  ours   {ours}\n  Java's {theirs}")
            played.append(request.code)
    return played, wrong


def test_the_recorded_session_gets_equal_answers(tmp_path: Path) -> None:
    played, wrong = asyncio.run(_play(tmp_path / "controller"))
    assert not wrong, "\n".join(wrong)
    assert set(played) == CODES
