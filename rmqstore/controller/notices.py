"""Notifications of brokers that the master of their group changed."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from rmqstore.controller.group import Group
from rmqstore.errors import StoreError
from rmqstore.net.runtime import Runtime
from rmqstore.net.supervisor import Supervisor
from rmqstore.remoting.bodies.controller import SyncStateSetBody
from rmqstore.remoting.codes import RequestCode
from rmqstore.remoting.frames import Frame
from rmqstore.remoting.headers.controller import NotifyBrokerRoleChangedRequestHeader

__all__ = ["Notices"]

_TIMEOUT_S = 3.0
_PAUSES_S = (0.2, 1.0, 3.0)
"""Pauses between attempts; a broker that receives no notice polls."""


class Notices:
    """Sends the newest notice to each address; an unreachable broker delays no other."""

    def __init__(self, tasks: Supervisor, runtime: Runtime) -> None:
        self._tasks = tasks
        self._runtime = runtime
        self._waiting: dict[str, Frame] = {}
        """Notices by address; the notice of a later epoch replaces an earlier notice."""

    def master_changed(
        self, group: Group, living: Collection[int], *, silent: int | None = None
    ) -> None:
        """Notify the brokers *living* of the master and the set of *group*, after this call.

        The former master *silent* gets one attempt. If its process was stopped, the notice is in
        its socket when it continues; a process that was started since must not receive it before
        it is registered.
        """
        fields = NotifyBrokerRoleChangedRequestHeader(
            master_address=group.master_address,
            master_epoch=group.master_epoch,
            sync_state_set_epoch=group.set_epoch,
            master_broker_id=group.master_id,
            master_life=group.master_life,
        ).to_fields()
        body = SyncStateSetBody(group.sync_state_set, group.set_epoch).encode()
        pauses: dict[int, tuple[float, ...]] = dict.fromkeys(living, _PAUSES_S)
        if silent is not None and silent in group.brokers:
            pauses.setdefault(silent, ())
        for each, its_pauses in pauses.items():
            address = group.brokers[each].address
            is_idle = address not in self._waiting
            self._waiting[address] = Frame.request(
                RequestCode.NOTIFY_BROKER_ROLE_CHANGED, fields, body
            )
            if is_idle:
                self._tasks.start(self._deliver(address, its_pauses), name=f"notice to {address}")

    async def _deliver(self, address: str, pauses_s: Iterable[float]) -> None:
        pauses = iter(pauses_s)
        try:
            while True:
                notice = self._waiting[address]
                try:
                    await self._runtime.client.send_one_way(address, notice, timeout=_TIMEOUT_S)
                except StoreError as error:
                    pause = next(pauses, None)
                    if pause is None:
                        self._runtime.log.warning("%s was not notified: %s", address, error)
                        return
                    await self._runtime.sleep(pause)
                    continue
                if self._waiting[address] is notice:
                    return
        finally:
            del self._waiting[address]
