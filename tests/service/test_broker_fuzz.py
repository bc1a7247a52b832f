"""A broker that gets recorded requests with fields and bodies changed: it answers each."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

import pytest

from rmqstore.broker.node import Broker
from rmqstore.broker.request_table import ROWS
from rmqstore.remoting.client import RemotingClient
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.frames import Frame, FrameDecoder
from tests.golden.remoting import exchanges
from tests.service.changed_requests import changed
from tests.service.remoting_peers import on_loop
from tests.support.agreement import check_agreement
from tests.support.brokers import broker_config
from tests.support.effort import rounds
from tests.support.sends import CALL_S, send_request

SEED = int(os.environ.get("RMQ_SEED", "20261124"))
COUNT = rounds(1500, 50_000)

VALUES = (
    "T",
    "T@g",
    "%RETRY%g",
    "TBW102",
    "a/../b",
    "6",
    "16",
    "4194304",
    "DELAY\x013\x02",
    "\x02",
)
BODIES = (
    *(b"x" * 200_000, b"\0" * 40, b'{"clientID":"c"}', b'{"mqSet":[{}]}'),
    *(b'{"consumerDataSet":[{"groupName":"g"}],"clientID":7}', b'{"groupName":"g"}'),
)
OTHERS = [
    Frame(
        RequestCode.QUERY_ASSIGNMENT,
        body=b'{"clientId":"c","consumerGroup":"g","messageModel":"CLUSTERING",'
        b'"strategyName":"AVG","topic":"T"}',
    ),
]
"""Requests that no session has."""


@on_loop
async def test_changed_requests_are_answered_and_end_no_task(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rng = Random(SEED)
    # A pull without messages is answered soon.
    config = broker_config(tmp_path, long_polling=False, short_polling_ms=1)
    async with Broker(config) as broker, RemotingClient() as client:
        known = set(ROWS)
        requests = [
            FrameDecoder().feed(each.request)[0]
            for session in ("controller", "attributes")
            for each in exchanges(session)
            if each.code in known
        ]
        requests += OTHERS
        assert len({each.code for each in requests}) > 25
        codes: set[int] = set()
        for _ in range(COUNT):
            request = changed(rng, rng.choice(requests), values=VALUES, bodies=BODIES)
            answer = await client.call(broker.address, request, CALL_S)
            codes.add(answer.code)
        assert {ResponseCode.SUCCESS, ResponseCode.INVALID_PARAMETER} < codes
        assert [each for each in caplog.records if each.exc_info] == []
        assert broker.status().task_failures == ()
        answer = await client.call(broker.address, send_request("after", b"after"), CALL_S)
        assert answer.code == ResponseCode.SUCCESS
        assert check_agreement(broker.store.store)[-1].body == b"after"
    async with Broker(config) as broker:
        assert broker.metadata.topic("after") is not None
