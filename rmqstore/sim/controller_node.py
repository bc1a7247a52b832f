"""A controller node over the decision log, with production's request handlers.

`Node` runs `Leader` over `ControllerState` and `Liveness`, and proposes due commands. `ServedNode`
adds production's request handlers (`rmqstore.controller.requests`). Their coroutines run in virtual
time (`coroutines`).
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any

from rmqstore.config import ControllerConfig, with_changes
from rmqstore.controller.commands import Command, decode_command, encode_command
from rmqstore.controller.decisions import Decisions, NotWritten, not_leader
from rmqstore.controller.group import Group
from rmqstore.controller.leader import Election, Leader
from rmqstore.controller.liveness import Liveness
from rmqstore.controller.requests import Requests
from rmqstore.controller.state import ControllerState, Result
from rmqstore.errors import RequestRefused
from rmqstore.remoting.codes import ResponseCode
from rmqstore.remoting.frames import Frame
from rmqstore.sim import coroutines
from rmqstore.sim.clock import MachineClock, Timeline
from rmqstore.sim.coroutines import Pause, Work
from rmqstore.sim.decision_log import DecisionLog, Refusal

__all__ = ["Node", "ServedNode"]

_PATIENCE_MS = 200
_COMMIT_TIMEOUT_MS = 1500

Done = Callable[[Result | Refusal], None]
"""Receives the result of a command, or why it was refused."""


class Node:
    """One controller for the group *group*."""

    def __init__(self, number: int, log: DecisionLog, clock: MachineClock, group: str) -> None:
        self.number = number
        self.log = log
        self.clock = clock
        self.group = group
        self.is_alive = True
        self.life = 0
        self.state = ControllerState()
        self.applied = 0
        self.liveness = Liveness()
        self.leader: Leader | None = None
        self.term = 0
        self._kept = (0, self.state.snapshot())
        self._results: dict[int, Result] = {}
        self._waiting: dict[int, Done] = {}

    @property
    def process_id(self) -> str:
        """A different id in each life."""
        return f"{self.number}.{self.life}"

    def now_ms(self) -> int:
        """Return the time of this machine's monotonic clock."""
        return self.clock.monotonic_ms()

    def apply_next(self) -> None:
        """Apply the next entry, if there is one."""
        if not self.is_alive or self.applied >= len(self.log.entries):
            return
        result = self.state.apply(decode_command(self.log.entries[self.applied]))
        index, self.applied = self.applied, self.applied + 1
        self._results[index] = result
        waiting = self._waiting.pop(index, None)
        if waiting is not None:
            waiting(result)

    def keep_snapshot(self) -> None:
        """Store a snapshot for the start of the next life."""
        self._kept = (self.applied, self.state.snapshot())

    def crash(self) -> None:
        """End this life."""
        self.is_alive = False
        self.leader = None

    def restart(self) -> None:
        """Start another life with the last snapshot, unless the node runs."""
        if self.is_alive:
            return
        self.life += 1
        self.is_alive = True
        self.applied, data = self._kept
        self.state.restore(data)
        self.liveness = Liveness()
        self._waiting, self._results = {}, {}

    def lead(self, term: int) -> None:
        """Begin to decide; everything up to the beginning of the term is applied."""
        self.term = term
        self.leader = Leader(
            self.state, self.liveness, since_ms=self.now_ms(), patience_ms=_PATIENCE_MS
        )

    def resign(self, term: int) -> None:
        """Stop deciding, because *term* has ended."""
        if self.term == term:
            self.leader = None

    def due(self) -> Command | Election | None:
        """Return what is due, None without leadership."""
        return None if self.leader is None else self.leader.review(self.group, self.now_ms())

    def review(self) -> None:
        """Propose the command that is due."""
        due = self.due()
        if isinstance(due, Election) and due.doubted is not None and self.leader is not None:
            # Only a master of this library that sent no heartbeat yet; it does not serve alone.
            self.leader.answered(self.group, due.doubted, serves=False, now_ms=self.now_ms())
            due = self.due()
        if isinstance(due, Election):
            self.hold(due)
        elif due is not None:
            self.propose(due)

    def propose(self, command: Command) -> None:
        """Commit a command."""
        self.send(command, lambda result: None)

    def hold(self, election: Election) -> None:
        """Commit an election, if it has a command."""
        leader, command = self.leader, election.command
        assert leader is not None, "a node that leads proposes"
        if command is None:
            return
        leader.begin(election)

        def done(result: Result | Refusal) -> None:
            if isinstance(result, Refusal):
                leader.fail(election, "it was refused", is_unknown=False, now_ms=self.now_ms())
            else:
                leader.end(election, result)

        self.send(command, done)

    def send(self, command: Command, done: Done) -> None:
        """Send a command to the log. *done* is never called if the outcome stays unknown."""
        life = self.life

        def answered(index: int | Refusal) -> None:
            if life != self.life or not self.is_alive:
                return
            if isinstance(index, Refusal):
                done(index)
            elif index in self._results:
                done(self._results[index])
            else:
                self._waiting[index] = done

        self.log.propose(self.number, self.term, encode_command(command), answered)


class ServedNode(Node):
    """A node with production's handlers and decisions. *elected* is called with each election that
    it writes, and *stuck* when the outcome of a proposal stays unknown."""

    def __init__(
        self,
        number: int,
        log: DecisionLog,
        clock: MachineClock,
        group: str,
        *,
        timeline: Timeline,
        elected: Callable[[ServedNode, Election], None],
        stuck: Callable[[ServedNode], None],
    ) -> None:
        super().__init__(number, log, clock, group)
        self.config = ControllerConfig()
        self._timeline = timeline
        self._elected = elected
        self._stuck = stuck
        self._decisions = Decisions(self)
        self._handlers = Requests(self).dispatched()

    def restart(self) -> None:
        """Start another life, unless the node runs."""
        if not self.is_alive:
            self._decisions = Decisions(self)
        super().restart()

    def receive(self, source: int, request: Frame, respond: Callable[[Frame], None]) -> None:
        """Answer a request, now or later; never if this life ends before."""
        try:
            found = self._handlers[request.code](source, request)
        except RequestRefused as error:
            respond(_refusal(request, error))
            return
        if found is None or isinstance(found, Frame):
            if found is not None:
                respond(found)
            return
        assert isinstance(found, Coroutine), "the handlers are coroutines or plain functions"
        self._run(found, respond, partial(self._refuse, request, respond))

    @staticmethod
    def _refuse(request: Frame, respond: Callable[[Frame], None], error: RequestRefused) -> None:
        respond(_refusal(request, error))

    def _run(
        self,
        coroutine: Coroutine[Any, Any, Any],
        done: Callable[[Any], None],
        failed: Callable[[RequestRefused], None],
    ) -> None:
        life = self.life
        coroutines.run(
            coroutine,
            is_alive=lambda: life == self.life and self.is_alive,
            done=done,
            failed=failed,
        )

    # ---- the handlers' host

    def metadata(self) -> Mapping[str, str]:
        """Return nothing: the answers to heartbeats name the leader."""
        return {}

    def watch(self, connection: Any) -> None:
        """Do nothing: single messages have no connection that could close."""

    async def configure(self, changes: Mapping[str, str]) -> None:
        """Use another configuration, until this life ends."""
        self.config = with_changes(self.config, changes)
        if self.leader is not None:
            self.leader.allows_unclean = self.config.elect_unclean_master

    async def leads(self) -> bool:
        """Return True once it is certain that this node led after the call began; else never
        return."""
        if self.leader is None:
            return False

        def begin(resume: Callable[[Any], None]) -> None:
            self.log.barrier(self.number, self.term, partial(resume, True))

        return bool(await Pause(begin))

    async def commit(self, command: Command) -> Result:
        """Commit *command*. Raises NotWritten if it never takes effect, RequestRefused if the
        outcome is not certain."""
        if self.leader is None:
            raise not_leader()
        answers: list[Result | Refusal] = []

        def begin(resume: Callable[[Any], None]) -> None:
            def once(result: Result | Refusal, *, is_late: bool) -> None:
                if not answers:
                    answers.append(result)
                    resume(is_late)

            self.send(command, partial(once, is_late=False))
            wait_us = _COMMIT_TIMEOUT_MS * 1000
            self._timeline.after(wait_us, partial(once, Refusal.DISK, is_late=True))

        if await Pause(begin):
            self._stuck(self)
            raise RequestRefused("the outcome is not known", code=ResponseCode.SYSTEM_ERROR)
        found = answers[0]
        if found is Refusal.DISK:
            raise NotWritten("the disk is full", code=ResponseCode.SYSTEM_ERROR)
        if isinstance(found, Refusal):
            raise not_leader()
        return found

    async def elect(
        self, group: str, cluster: str, broker_id: int | None, *, is_designated: bool
    ) -> tuple[Election, Group | None]:
        """Hold an election, as production does."""
        return await self._decisions.elect(group, cluster, broker_id, is_designated=is_designated)

    def review(self, group: str = "") -> None:
        """Do the work that is due, as production does."""
        if self.is_alive:
            self._decisions.review(group or self.group)

    async def reviewed(self, group: str) -> None:
        """Wait until the work that was due is done."""
        await self._decisions.reviewed(group)

    # ---- the decisions' host

    async def sleep(self, ms: int) -> None:
        """Wait in virtual time."""
        await Pause(lambda resume: self._timeline.after(ms * 1000, resume, None))

    def carry_out(self, work: Coroutine[Any, Any, None], *, group: str) -> Work:
        """Run a coroutine from the next event on."""
        begun, life = Work(), self.life

        def done(value: None) -> None:
            begun.end()

        def begin() -> None:
            if life == self.life and self.is_alive:
                self._run(work, done, _raise)
            else:
                work.close()

        self._timeline.after(0, begin)
        return begun

    async def finished(self, work: Work) -> None:
        """Wait for the end of a coroutine."""
        await work

    async def serves(self, group: str, broker_id: int) -> bool:
        """Return False: a master of this library acknowledges nothing alone before the controller
        agrees."""
        return False

    def holds(self, election: Election) -> None:
        """Report the election, to be checked once it is committed."""
        self._elected(self, election)

    def held(self, election: Election, group: Group) -> None:
        """Do nothing: the notices are sent where the log is committed."""

    def reviewed_as(self, group: str, due: Command | Election | None) -> None:
        """Do nothing: groups are reviewed often."""

    def failed(self, group: str, error: RequestRefused) -> None:
        """Do nothing: what is due is found again."""


def _raise(error: RequestRefused) -> None:
    raise error


def _refusal(request: Frame, error: RequestRefused) -> Frame:
    return request.respond(error.code, str(error))
