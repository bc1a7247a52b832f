"""The addresses of a broker's nameservers and controllers, which may be given as names that several
of them share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from rmqstore.config import BrokerConfig
from rmqstore.errors import ArgumentError
from rmqstore.net.identity_log import IdentityLog
from rmqstore.net.runtime import Runtime

__all__ = ["Host", "ServerAddresses"]

_INTERVAL_S = 120.0
"""RocketMQ looks names up as often."""
_RETRY_S = 10.0
_TIMEOUT_S = 5.0


class Host(Protocol):
    """The part of a broker that the addresses are of."""

    @property
    def config(self) -> BrokerConfig:
        """The settings."""

    @property
    def log(self) -> IdentityLog:
        """The log of the broker."""

    @property
    def runtime(self) -> Runtime:
        """The world of the broker."""


class ServerAddresses:
    """Looks up names with `fetchNameSrvAddrByDnsLookup` and `fetchControllerAddrByDnsLookup`: when
    the broker starts, when its configuration changes, and every two minutes.

    A name whose look-up fails keeps its previous addresses; before the first successful look-up,
    the name itself is used. *on_change* is called after each look-up that found other addresses.
    """

    def __init__(self, host: Host, on_change: Callable[[], None]) -> None:
        self._host = host
        self._on_change = on_change
        self._tasks = host.runtime.tasks("server addresses")
        self._due = host.runtime.event()
        self._found: dict[str, tuple[str, ...]] = {}
        self._failed: set[str] = set()

    async def start(self) -> None:
        """Look up the names, and go on to do so in a task."""
        await self._look_up()
        self._tasks.start(self._run(), name="server addresses")

    async def close(self) -> None:
        """Look up nothing more."""
        await self._tasks.close()

    def update(self) -> None:
        """Look up the names soon: the configuration has changed."""
        self._due.set()

    @property
    def nameservers(self) -> tuple[str, ...]:
        """The nameservers, as "host:port"."""
        config = self._host.config
        return self._each_of(config.nameservers, config.nameservers_by_dns)

    @property
    def controllers(self) -> tuple[str, ...]:
        """The controllers, as "host:port"."""
        config = self._host.config
        return self._each_of(config.controllers, config.controllers_by_dns)

    def _each_of(self, places: Sequence[str], by_dns: bool) -> tuple[str, ...]:
        found = self._found if by_dns else {}
        # Two names may have an address in common.
        return tuple(dict.fromkeys(each for place in places for each in found.get(place, (place,))))

    async def _run(self) -> None:
        while True:
            await self._due.wait(_RETRY_S if self._failed else _INTERVAL_S)
            self._due.clear()
            await self._look_up()

    async def _look_up(self) -> None:
        config = self._host.config
        names = {
            *(config.nameservers if config.nameservers_by_dns else ()),
            *(config.controllers if config.controllers_by_dns else ()),
        }
        former = self._found
        found = await self._host.runtime.gather(*(self._addresses(name) for name in names))
        self._found = {name: each for name, each in zip(names, found, strict=True) if each}
        self._failed &= names
        if self._found != former:
            self._on_change()

    async def _addresses(self, name: str) -> tuple[str, ...]:
        try:
            resolved = await self._host.runtime.addresses_of(name, limit_s=_TIMEOUT_S)
            found = tuple(sorted(resolved))
        except (OSError, ArgumentError) as error:
            if name not in self._failed:
                self._failed.add(name)
                reason = str(error) or f"no answer in {_TIMEOUT_S:g} s"
                self._host.log.warning("%s: its addresses are not known: %s", name, reason)
            return self._found.get(name, ())
        self._failed.discard(name)
        return found
