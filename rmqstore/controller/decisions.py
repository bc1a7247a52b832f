"""Elections and other due commands, one at a time for each group.

The coroutines run on the event loop of a controller, and in virtual time in the simulator.
Therefore they await only operations of `Host`.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Protocol

from rmqstore.controller.commands import Command
from rmqstore.controller.group import Group
from rmqstore.controller.leader import Election, Leader
from rmqstore.controller.state import Result, Verdict
from rmqstore.errors import RequestRefused
from rmqstore.remoting.codes import ResponseCode

__all__ = ["Decisions", "Host", "NotWritten", "not_leader"]

_DESIGNATE_WAIT_MS = 2500
"""Java's administration tool waits 3 s for an answer."""
_POLL_MS = 20


class NotWritten(RequestRefused):
    """A command certainly was not written, and never will be."""


class Host(Protocol):
    """The part of a node that decisions use."""

    @property
    def leader(self) -> Leader | None:
        """The decisions of this node; None while it does not lead."""

    def now_ms(self) -> int:
        """Return the time of the monotonic clock."""

    async def sleep(self, ms: int) -> None:
        """Wait."""

    def carry_out(self, work: Coroutine[Any, Any, None], *, group: str) -> Any:
        """Start *work* after this call has returned; return a handle for `finished`."""

    async def finished(self, work: Any) -> None:
        """Wait for the end of the work with this handle."""

    async def commit(self, command: Command) -> Result:
        """Commit *command*. Raises NotWritten if it never takes effect, RequestRefused if the
        outcome is not certain."""

    async def serves(self, group: str, broker_id: int) -> bool:
        """Query a broker whether it is the master of *group*; return False without an answer."""

    def review(self, group: str) -> None:
        """Call `Decisions.review` for *group*, unless the node ends."""

    def reviewed_as(self, group: str, due: Command | Election | None) -> None:
        """Receive the work that is due for *group*; an election without a command names the
        replicas that it waits for."""

    def holds(self, election: Election) -> None:
        """Receive an election that is about to be written."""

    def held(self, election: Election, group: Group) -> None:
        """Receive an election that took effect, and the group after it."""

    def failed(self, group: str, error: RequestRefused) -> None:
        """Receive the reason why a due command for *group* may not be written."""


def not_leader() -> RequestRefused:
    """Return the refusal of a node that does not lead."""
    return NotWritten("this controller does not lead", code=ResponseCode.CONTROLLER_NOT_LEADER)


class Decisions:
    """The decisions of one node."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._busy: dict[str, Any] = {}
        """Groups for which a command is being written."""

    async def elect(
        self, group: str, cluster: str, broker_id: int | None, *, is_designated: bool
    ) -> tuple[Election, Group | None]:
        """Hold an election. Return it, and the group afterwards if it took effect.

        An election that a broker requests waits for the answer of a doubted master. One that an
        operator requests waits for the lease of a living master to end, and for replicas to report.
        """
        host = self._host
        end_ms = host.now_ms() + _DESIGNATE_WAIT_MS
        has_queried = False
        while True:
            await self.reviewed(group)
            leader = host.leader
            if leader is None:
                raise not_leader()
            election = leader.elect(
                group,
                cluster=cluster,
                broker_id=broker_id,
                is_designated=is_designated,
                now_ms=host.now_ms(),
            )
            if election.doubted is not None and not has_queried:
                has_queried = True
                self.review(group)
                continue
            is_due = election.command is not None or election.verdict is not Verdict.STALE
            if is_due or not is_designated or host.now_ms() >= end_ms:
                break
            await host.sleep(_POLL_MS)
        command = election.command
        if command is None or (command.master_id is None and broker_id is not None):
            # If the designated broker cannot be elected, the group keeps its master.
            return Election(None, election.verdict, election.reason), None
        return election, await self._hold(leader, election)

    def review(self, group: str) -> None:
        """Do the work that is due for *group*, later."""
        leader = self._host.leader
        if leader is None or group in self._busy:
            return
        due = leader.review(group, self._host.now_ms())
        self._host.reviewed_as(group, due)
        if isinstance(due, Election) and due.doubted is not None:
            work = self._query(leader, group, due.doubted)
            self._busy[group] = self._host.carry_out(work, group=group)
            return
        if due is None or (isinstance(due, Election) and due.command is None):
            return
        self._busy[group] = self._host.carry_out(self._do(leader, group, due), group=group)

    async def reviewed(self, group: str) -> None:
        """Wait until the work that was due for *group* is done."""
        while (work := self._busy.get(group)) is not None:
            await self._host.finished(work)

    async def _do(self, leader: Leader, group: str, due: Command | Election) -> None:
        is_done = False
        try:
            if isinstance(due, Election):
                is_done = await self._hold(leader, due) is not None
            else:
                is_done = (await self._host.commit(due)).is_applied
        except RequestRefused as error:
            self._host.failed(group, error)
        finally:
            del self._busy[group]
        if is_done:
            self._host.review(group)

    async def _query(self, leader: Leader, group: str, broker_id: int) -> None:
        """Queries a master whether it serves, and continues the election."""
        try:
            serves = await self._host.serves(group, broker_id)
            leader.answered(group, broker_id, serves=serves, now_ms=self._host.now_ms())
        finally:
            del self._busy[group]
        self._host.review(group)

    async def _hold(self, leader: Leader, election: Election) -> Group | None:
        """Writes an election; returns the group afterwards, None if it had no effect."""
        command = election.command
        assert command is not None, "the caller checked it"
        self._host.holds(election)
        leader.begin(election)
        failure, is_unknown = "the controller ended", True
        result: Result | None = None
        try:
            result = await self._host.commit(command)
        except RequestRefused as error:
            failure, is_unknown = str(error), not isinstance(error, NotWritten)
            raise
        finally:
            if result is None:
                now_ms = self._host.now_ms()
                leader.fail(election, failure, is_unknown=is_unknown, now_ms=now_ms)
            else:
                leader.end(election, result)
        if result.group is None or not result.is_applied:
            return None
        self._host.held(election, result.group)
        return result.group
