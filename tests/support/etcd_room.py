"""An etcd whose quota is used up, and room again."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Sequence

import pytest

from rmqstore.controller.engines.etcd_gateway import Gateway, GatewayRefused

_ROOM, _AFTER = (base64.b64encode(each).decode() for each in (b"room/", b"room0"))
_PIECE = base64.b64encode(bytes(1024 * 1024)).decode()
_PIECES_MAX = 100


def use_up_quota(endpoints: Sequence[str]) -> None:
    """Fill etcd with keys of its own kind until it refuses them for lack of room."""
    asyncio.run(_use_up_quota(endpoints))


def make_room(endpoints: Sequence[str]) -> None:
    """Remove those keys, have etcd forget what was overwritten, and end its alarms."""
    asyncio.run(give_room(endpoints))


async def _use_up_quota(endpoints: Sequence[str]) -> None:
    gateway = Gateway(endpoints)
    body = {"value": _PIECE}
    try:
        for number in range(_PIECES_MAX):
            body["key"] = base64.b64encode(b"room/%d" % number).decode()
            await gateway.call("/v3/kv/put", body, timeout=60)
        pytest.fail(f"etcd has room for {_PIECES_MAX} MiB")
    except GatewayRefused as refused:
        if not refused.is_full:
            raise
    finally:
        await gateway.close()


async def give_room(endpoints: Sequence[str]) -> None:
    """Do the work of `make_room` on the running loop."""
    gateway = Gateway(endpoints)
    span = {"key": _ROOM, "range_end": _AFTER}
    answer = (await gateway.call("/v3/kv/deleterange", span, timeout=60)).body
    body = {"revision": answer["header"]["revision"], "physical": True}
    await gateway.call("/v3/kv/compaction", body, timeout=60)
    for each in endpoints:
        member = Gateway([each])
        await member.call("/v3/maintenance/defragment", {}, timeout=60)
        await member.close()
    request = {"action": "GET", "alarm": "NONE", "memberID": "0"}
    alarms = (await gateway.call("/v3/maintenance/alarm", request, timeout=60)).body
    for each in alarms.get("alarms", []):
        disarm = {"action": "DEACTIVATE", "alarm": "NOSPACE", "memberID": each["memberID"]}
        await gateway.call("/v3/maintenance/alarm", disarm, timeout=60)
    await gateway.close()
