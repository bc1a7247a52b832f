"""Three controllers with C-Raft on one event loop, over the wire."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqstore.config import ControllerConfig
from rmqstore.controller.engines import raft
from rmqstore.controller.server import Controller
from rmqstore.errors import ConfigError
from rmqstore.remoting.client import RemotingClient
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.frames import Frame
from tests.service.remoting_peers import on_loop
from tests.support.ports import reserved
from tests.support.waiting import until

NODES = ("n0", "n1", "n2")
needs_raft = pytest.mark.skipif(not raft.is_built(), reason="built without libraft")


def configs(root: Path, ports: list[int]) -> dict[str, ControllerConfig]:
    places = [
        ";".join(f"{node}-127.0.0.1:{port}" for node, port in zip(NODES, some, strict=True))
        for some in (ports[:3], ports[3:])
    ]
    return {
        node: ControllerConfig(
            bind_address="127.0.0.1",
            peers=places[0],
            raft_peers=places[1],
            self_id=node,
            store_path=str(root / node),
        )
        for node in NODES
    }


@pytest.fixture
def ports() -> Iterator[list[int]]:
    with reserved(2 * len(NODES)) as held:
        yield held


async def ask(controller: Controller, code: RequestCode, **fields: str) -> Frame:
    client = RemotingClient()
    try:
        return await client.call(controller.address, Frame.request(code, fields), timeout=30)
    finally:
        await client.close()


async def apply_id(controller: Controller, number: int) -> Frame:
    return await ask(
        controller,
        RequestCode.CONTROLLER_APPLY_BROKER_ID,
        clusterName="c",
        brokerName="b",
        appliedBrokerId=str(number),
        registerCheckCode=f"127.0.0.1:{number};1",
    )


@needs_raft
@on_loop
async def test_three_controllers_elect_and_another_answers_after_the_leader(
    tmp_path: Path, ports: list[int]
) -> None:
    group = {node: Controller(config) for node, config in configs(tmp_path, ports).items()}
    try:
        for each in group.values():
            await each.start()
        first = await leader_of(group)
        assert (await apply_id(group[first], 1)).code == ResponseCode.SUCCESS

        follower = next(node for node in group if node != first)
        refused = await apply_id(group[follower], 2)
        assert refused.code == ResponseCode.CONTROLLER_NOT_LEADER
        answer = await ask(group[follower], RequestCode.CONTROLLER_GET_METADATA_INFO)
        host, port = group[first].address
        assert answer.ext_fields["controllerLeaderId"] == first
        assert answer.ext_fields["controllerLeaderAddress"] == f"{host}:{port}"
        assert answer.ext_fields["isLeader"] == "false"

        await group.pop(first).close()
        second = await leader_of(group)
        answer = await ask(
            group[second],
            RequestCode.CONTROLLER_GET_NEXT_BROKER_ID,
            clusterName="c",
            brokerName="b",
        )
        assert answer.ext_fields["nextBrokerId"] == "2", "the state of the first leader"
        assert (await apply_id(group[second], 2)).code == ResponseCode.SUCCESS
    finally:
        for each in group.values():
            await each.close()


async def leader_of(group: dict[str, Controller]) -> str:
    """Return the node that leads, once every node of *group* knows it."""
    found: set[str | None] = set()

    def is_known() -> bool:
        known = [each.metadata().get("controllerLeaderId") for each in group.values()]
        found.clear()
        found.update(known)
        (leader, *others) = found
        return not others and leader in group

    await until(is_known, "a leader that all know")
    leader = found.pop()
    assert leader is not None
    return leader


@needs_raft
@on_loop
async def test_directory_of_another_node_is_refused(tmp_path: Path, ports: list[int]) -> None:
    nodes = configs(tmp_path, ports)
    first = Controller(nodes["n0"])
    await first.start()
    await first.close()
    second = Controller(nodes["n1"].replace(store_path=str(tmp_path / "n0")))
    with pytest.raises(ConfigError, match="belongs to node n0"):
        await second.start()


@on_loop
async def test_group_without_the_engine_names_the_cure(
    tmp_path: Path, ports: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> None:
        raise ImportError("no libraft")

    monkeypatch.setattr(raft, "binding", missing)
    with pytest.raises(ConfigError, match="apt-get install libraft-dev libuv1-dev"):
        await Controller(configs(tmp_path, ports)["n0"]).start()
