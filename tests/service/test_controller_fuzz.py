"""A controller that gets recorded requests with fields and bodies changed: it answers each."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from random import Random

from rmqstore.config import ControllerConfig
from rmqstore.controller.requests import Requests
from rmqstore.controller.server import Controller
from rmqstore.controller.state import ControllerState
from rmqstore.remoting.client import RemotingClient
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.frames import Frame, FrameDecoder
from tests.golden.remoting import exchanges
from tests.service.remoting_peers import on_loop
from tests.support.effort import rounds

SEED = int(os.environ.get("RMQ_SEED", "20261123"))
COUNT = rounds(1500, 50_000)
VALUES = (
    *("", "0", "-1", "1", "2", "3", "true", "x", "\x00", "ü" * 300, "9223372036854775807"),
    *("-9223372036854775808", "2147483647", "1e3", "None", "1;2", "broker-a", "PeerCluster"),
)
BODIES = (
    *(b"", b"{", b"[]", b"null", b"7", b"\xff\xfe", b'["broker-a"]', b'{"syncStateSet":{}}'),
    *(b'{"syncStateSet":[1,2,99],"syncStateSetEpoch":1}', b"[" * 5000, b"listenPort=x\n"),
    *(b'{"syncStateSet":[1.5]}', b'{"syncStateSet":[true],"syncStateSetEpoch":"1"}'),
)
# Fields that brokers of this library add.
ADDED = ("brokerLife", "heartbeatNumber", "leaseMillis", "inSyncReplicas", "roleEpoch")


def changed(rng: Random, request: Frame) -> Frame:
    fields, body = dict(request.ext_fields), request.body
    for _ in range(rng.randrange(3)):
        name = rng.choice([*fields, *ADDED])
        if rng.random() < 0.2:
            fields.pop(name, None)
        else:
            fields[name] = rng.choice(VALUES)
    if rng.random() < 0.3:
        body = rng.choice(BODIES)
    return replace(request, flag=0, ext_fields=fields, body=body)


@on_loop
async def test_changed_requests_are_answered_and_end_no_task(tmp_path: Path) -> None:
    rng = Random(SEED)
    config = ControllerConfig(
        bind_address="127.0.0.1",
        listen_port=0,
        store_path=str(tmp_path / "log"),
        notify_role_changed=False,
    )
    async with Controller(config) as controller, RemotingClient() as client:
        known = Requests(controller).handlers().keys()
        requests = [
            FrameDecoder().feed(each.request)[0]
            for each in exchanges("controller")
            if each.code in known
        ]
        assert {each.code for each in requests} >= known - {RequestCode.GET_CONTROLLER_CONFIG}
        codes: set[int] = set()
        for _ in range(COUNT):
            request = changed(rng, rng.choice(requests))
            answer = await client.call(controller.address, request, timeout=60)
            assert answer.code != ResponseCode.SYSTEM_ERROR, (request, answer.remark)
            codes.add(answer.code)
        assert {ResponseCode.SUCCESS, ResponseCode.INVALID_PARAMETER} < codes
        status = controller.status()
        assert (status.failure, status.task_failures) == (None, ())
        kept = ControllerState()
        kept.restore(controller.state.snapshot())
        assert kept.snapshot() == controller.state.snapshot()
