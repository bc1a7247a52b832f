"""The leader among controllers, from their answers to GET_METADATA_INFO.

Each controller names the leader by an address of its own configuration, which brokers may not
reach. So a controller that reports itself as the leader is used at the address at which it
answered, also where others name the leader by the same name.
"""

from __future__ import annotations

from collections.abc import Collection

from rmqstore.remoting.headers.controller import GetControllerMetadataResponseHeader

__all__ = ["LeaderSearch"]


class LeaderSearch:
    """The latest answer of each controller."""

    def __init__(self) -> None:
        self._named: dict[str, str] = {}
        """The leaders that controllers name, by the controller that was asked."""
        self._reached: dict[str, str] = {}
        """By the name of a leader, the address at which it answered."""

    def answered(self, asked: str, header: GetControllerMetadataResponseHeader) -> None:
        """Take the answer of the controller at *asked*."""
        self._reached = {
            name: place
            for name, place in self._reached.items()
            if name != asked and (place != asked or header.is_leader)
        }
        name = header.leader_address or (asked if header.is_leader else "")
        if not name:
            self.failed(asked)
            return
        if header.is_leader and name != asked:
            self._reached[name] = asked
        self._named[asked] = name

    def failed(self, asked: str) -> None:
        """Record that the controller at *asked* names no leader."""
        self._named.pop(asked, None)

    def forget(self) -> None:
        """Drop the leaders that were named, because the present one does not lead."""
        self._named.clear()

    def best(self, present: str | None = None) -> str | None:
        """Return the address of the leader that most controllers name, of equals *present*; None
        while none is named.

        A leader that was replaced names itself still; the others name the next one.
        """
        found = [self._reached.get(name, name) for name in self._named.values()]
        return max(found, key=lambda each: (found.count(each), each == present), default=None)

    def votes(self, leader: str) -> int:
        """Return how many controllers name the leader at that address."""
        return len(self.named_by(leader))

    def named_by(self, leader: str) -> Collection[str]:
        """Return the controllers that name the leader at that address, sorted."""
        return sorted(
            asked for asked, name in self._named.items() if self._reached.get(name, name) == leader
        )

    def no_answer(self, leader: str) -> str:
        """Return the text of a warning that the leader at an address does not answer."""
        namers = ", ".join(self.named_by(leader)) or "a controller"
        return (
            f"the leader of the controllers does not answer at {leader}, as {namers} names it: let "
            "its controllerDLegerPeers name an address that brokers reach, or name the leader's "
            "reachable address in controllerAddr"
        )
