"""The groups, filters and light queues of real brokers, taken over by a broker of ours.

`expected.jsonl` has what the broker of Java answered after its own restart. Lines about POP have no
counterpart here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rmqstore.broker.node import Broker
from rmqstore.remoting.bodies.clients import ConsumerData, HeartbeatData, SubscriptionData
from rmqstore.remoting.client import RemotingClient
from rmqstore.remoting.codes import RequestCode
from rmqstore.remoting.frames import Frame
from rmqstore.remoting.headers.pull import PullFlag, PullMessageRequestHeader
from rmqstore.store.metadata import FilterTable
from tests.golden import RELEASES
from tests.golden.taken_over import ENDINGS, TakenOver
from tests.reference import record as reference
from tests.support.loops import on_loop
from tests.support.sends import CALL_S

EXPRESSION = "n > 3 AND color = 'red'"
every_directory = pytest.mark.parametrize(
    ("release", "ending"), [(release, ending) for release in RELEASES for ending in ENDINGS]
)


async def pulled(
    client: RemotingClient, broker: Broker, group: str, topic: str, queue: int = 0, **changes: Any
) -> Frame:
    """Return the answer to a pull from the beginning of a queue."""
    values: dict[str, Any] = {
        "sys_flag": PullFlag.SUBSCRIPTION,
        "subscription": "*",
        "subscription_version": 0,
        "expression_type": "TAG",
    }
    header = PullMessageRequestHeader(
        consumer_group=group,
        topic=topic,
        queue_id=queue,
        queue_offset=0,
        max_messages=32,
        commit_offset=0,
        suspend_timeout_ms=0,
        **values | changes,
    )
    frame = Frame.request(RequestCode.PULL_MESSAGE, header.to_fields())
    return await client.call(broker.address, frame, timeout=CALL_S)


def by_sql(*, is_own: bool) -> dict[str, Any]:
    """Return the fields of a pull by the expression."""
    flag = PullFlag.SUBSCRIPTION if is_own else PullFlag(0)
    return {"sys_flag": flag, "subscription": EXPRESSION, "expression_type": "SQL92"}


def keys(answer: Frame) -> list[str]:
    """Return the keys of the messages of an answer."""
    found, at = [], 0
    while at < len(answer.body):
        found.append(reference.decode(answer.body, at).properties["KEYS"])
        at += int.from_bytes(answer.body[at : at + 4], "big")
    return found


@every_directory
@on_loop
async def test_expressions_select_what_they_selected_on_the_java_broker(
    tmp_path: Path, release: str, ending: str
) -> None:
    taken = TakenOver(tmp_path, release, f"groups-{ending}")
    async with Broker(taken.config) as broker, RemotingClient() as client:
        [data] = broker.metadata.filters.of_group("gsql")
        assert (data.expression, data.is_dead) == (EXPRESSION, True)
        lines = taken.expected("sql-pull")
        assert len(lines) == 4
        for line in lines:
            fields = by_sql(is_own=line["own_subscription"])
            answer = await pulled(
                client, broker, line["group"], "GroupsSql", line["queue"], **fields
            )
            assert (answer.code, keys(answer)) == (line["code"], line["keys"])


@on_loop
async def test_bit_maps_of_a_java_broker_hide_no_message(tmp_path: Path) -> None:
    taken = TakenOver(tmp_path, "5.3.3", "groups-clean")
    # As if the group had registered before the messages came, and the dispatcher had not seen it.
    file = taken.directory / "store" / "config" / FilterTable.FILE_NAME
    text = file.read_text().replace('"gsql"', '"other"').replace("[18,32,60]", "[1,2,3]")
    file.write_text(text.replace('"bornTime":1', '"bornTime":0,"x":1'))
    async with Broker(taken.config) as broker, RemotingClient() as client:
        [data] = broker.metadata.filters.of_group("other")
        assert (data.born_ms, data.bit_positions) == (0, (1, 2, 3))
        units = broker.store.store._units("GroupsSql", 0, 0, 5)
        assert any(each[6] for each in units), "the messages have bit maps"
        subscription = SubscriptionData(
            topic="GroupsSql", expression=EXPRESSION, version=data.version, expression_type="SQL92"
        )
        consumers = (ConsumerData(group="other", subscriptions=(subscription,)),)
        body = HeartbeatData(client_id="c1", consumers=consumers).encode()
        beat = Frame(RequestCode.HEART_BEAT, body=body)
        await client.call(broker.address, beat, timeout=CALL_S)
        answer = await pulled(client, broker, "other", "GroupsSql", **by_sql(is_own=False))
        assert keys(answer) == ["s4", "s8"]
