"""A controller that gets recorded requests with fields and bodies changed: it answers each."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

from rmqstore.config import ControllerConfig
from rmqstore.controller.request_table import ROWS
from rmqstore.controller.server import Controller
from rmqstore.controller.state import ControllerState
from rmqstore.remoting.client import RemotingClient
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.frames import FrameDecoder
from tests.golden.remoting import exchanges
from tests.service.changed_requests import changed
from tests.service.remoting_peers import on_loop
from tests.support.effort import rounds

SEED = int(os.environ.get("RMQ_SEED", "20261123"))
COUNT = rounds(1500, 50_000)
BODIES = (
    *(b'{"syncStateSet":{}}', b'{"syncStateSet":[1,2,99],"syncStateSetEpoch":1}'),
    *(b'{"syncStateSet":[1.5]}', b'{"syncStateSet":[true],"syncStateSetEpoch":"1"}'),
)
# Fields that brokers of this library add.
ADDED = ("brokerLife", "heartbeatNumber", "leaseMillis", "inSyncReplicas", "roleEpoch")


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
        known = set(ROWS)
        requests = [
            FrameDecoder().feed(each.request)[0]
            for each in exchanges("controller")
            if each.code in known
        ]
        assert {each.code for each in requests} >= known - {RequestCode.GET_CONTROLLER_CONFIG}
        codes: set[int] = set()
        for _ in range(COUNT):
            request = changed(rng, rng.choice(requests), added=ADDED, bodies=BODIES)
            answer = await client.call(controller.address, request, timeout=60)
            assert answer.code != ResponseCode.SYSTEM_ERROR, (request, answer.remark)
            codes.add(answer.code)
        assert {ResponseCode.SUCCESS, ResponseCode.INVALID_PARAMETER} < codes
        status = controller.status()
        assert (status.failure, status.task_failures) == (None, ())
        kept = ControllerState()
        kept.restore(controller.state.snapshot())
        assert kept.snapshot() == controller.state.snapshot()
