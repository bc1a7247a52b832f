"""The addresses at which a slave reaches its master.

Controllers name a master by the address that it announces to clients (brokerIP1). Slaves may not
reach it, while they reach the HA address (brokerIP2), which a nameserver names when a slave
registers. Then the log is copied from the HA address, and the metadata is requested at its host, on
the port for clients.
"""

from __future__ import annotations

from rmqstore.errors import ArgumentError
from rmqstore.net.addresses import Address, format_address, parse_address

__all__ = ["MasterPlaces", "MasterSearch", "other_places"]

_FAILURES_MIN = 2
"""Rounds without an answer after which another way is taken: a master may be starting."""


def other_places(master: Address, ha_address: str) -> tuple[Address, ...]:
    """Return where to try the port for clients of *master* besides its own address: at the host of
    its HA address. Nothing for an address that cannot be read."""
    try:
        host, _ = parse_address(ha_address)
    except ArgumentError:
        return ()
    return () if host == master[0] else ((host, master[1]),)


class MasterSearch:
    """The search for the HA address of *master*, as the controllers name it, for one order."""

    def __init__(self, master: str) -> None:
        self.master = master
        self.ha_address = ""
        """The HA address that a nameserver names for this master; empty for none."""
        self._failures = 0
        self._reasons: dict[Address, str] = {}

    @property
    def places(self) -> tuple[Address, ...]:
        """Where to ask the master for its HA address, in this order."""
        announced = parse_address(self.master)
        return (announced, *other_places(announced, self.ha_address))

    def named(self, master: str, ha_address: str) -> bool:
        """Take what a nameserver names; return whether it is a new address of this master."""
        if not _is_address(master) or not _is_address(ha_address):
            return False
        is_of_this = parse_address(master) == parse_address(self.master)
        if not is_of_this or ha_address == self.ha_address:
            return False
        self.ha_address = ha_address
        return True

    def is_master(self, place: Address, named: str | None) -> bool:
        """Whether the broker that answered at *place*, and names *named* as the master, is the
        master or will be: another one may have the place of an address that was not announced."""
        return place == parse_address(self.master) or named == self.master

    def answered(self) -> None:
        """Record that the master was reached."""
        self._failures = 0
        self._reasons.clear()

    def failed(self, place: Address, reason: str) -> None:
        """Record that the master was not reached at *place*."""
        if place == parse_address(self.master):
            self._failures += 1
        self._reasons[place] = reason

    @property
    def is_unreached(self) -> bool:
        """Whether the last round reached the master nowhere."""
        return self._failures > 0

    @property
    def is_out_of_reach(self) -> bool:
        """Whether this has lasted, so that an HA address of a nameserver is followed."""
        return self._failures >= _FAILURES_MIN

    @property
    def trouble(self) -> str:
        """Why the master is not followed, once this has lasted; empty otherwise."""
        if not self.is_out_of_reach:
            return ""
        reasons = "; ".join(
            f"{format_address(place)}: {reason}" for place, reason in sorted(self._reasons.items())
        )
        ha = self.ha_address or "no HA address of it"
        return (
            f"the master {self.master} is not reached at its address for clients, and the "
            f"nameservers name {ha} ({reasons}); let its brokerIP1, or its brokerIP2 and a "
            "nameserver, name an address that this broker reaches"
        )


class MasterPlaces:
    """Where the requests of a slave to its master go: to one address as long as it answers, then to
    the next one."""

    def __init__(self, announced: Address, others: tuple[Address, ...] = ()) -> None:
        self._announced = announced
        self._places = [announced, *others]
        self._is_checked = False

    @property
    def present(self) -> Address:
        """Where the next request goes."""
        return self._places[0]

    @property
    def is_doubtful(self) -> bool:
        """Whether the broker there has not confirmed yet that it is the announced one."""
        return self.present != self._announced and not self._is_checked

    def is_master(self, named: str | None) -> bool:
        """Take the address by which the broker there names the master; return whether it is the
        announced master."""
        self._is_checked = named == format_address(self._announced)
        return self._is_checked

    def failed(self) -> None:
        """Go on at the next address."""
        self._is_checked = False
        self._places.append(self._places.pop(0))


def _is_address(text: str) -> bool:
    try:
        parse_address(text)
    except ArgumentError:
        return False
    return True
