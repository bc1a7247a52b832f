"""Orders that are not carried out in time."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from rmqstore.broker.membership.orders import Decision
from rmqstore.broker.membership.role_keeper import RoleKeeper
from rmqstore.broker.membership.roles import Role
from rmqstore.net.identity_log import IdentityLog
from tests.support.waiting import until

MASTER = "127.0.0.1:10911"


def test_elected_broker_whose_disk_does_not_answer_refuses_the_epoch() -> None:
    async def run() -> None:
        now_ms, changes = 0, asyncio.Event()
        hung = asyncio.Event()

        async def become_master(*_: object, **__: object) -> None:
            await hung.wait()

        role = Role(broker_id=2)
        host: Any = SimpleNamespace(
            log=IdentityLog("tests", "broker b"),
            role=role,
            now_ms=lambda: now_ms,
            set_role=lambda _: None,
        )
        replica: Any = SimpleNamespace(
            role=None,
            epoch=4,
            become_master=become_master,
            status=lambda: SimpleNamespace(master=None, failure=None),
        )
        keeper = RoleKeeper(host, replica, 2, life=7, on_change=changes.set)
        keeper.start()
        elected = Decision(
            epoch=5,
            master_id=2,
            master_address=MASTER,
            master_life=7,
            members=frozenset({2}),
        )
        keeper.take(elected)
        await until(lambda: keeper._present is not None, "the order is carried out")

        now_ms = 10_000
        keeper.take(elected)
        await asyncio.wait_for(changes.wait(), 10)
        assert keeper.refused_epoch == 5
        assert keeper.cannot_lead
        assert keeper.trouble == "no role of master after 10 s"
        await keeper.close()

    asyncio.run(run())
