"""Carries out the plans of a broker's services: starts and stops them with the roles."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

from rmqstore.broker.membership.roles import Role
from rmqstore.broker.services.plan import Plan, Start, Stop
from rmqstore.broker.services.service import Service
from rmqstore.net.identity_log import IdentityLog
from rmqstore.net.metrics import Family
from rmqstore.net.runtime import Event, Runtime, Timer

__all__ = ["Host", "Services"]

_STEP_S = 10.0
"""How long a start or a stop may take; then it is cancelled, and counts as failed."""
_STOPPED_S = 3.0
"""How long a change of the role waits for the services of the former role."""
_BEGUN_S = 1.0
"""How long the announcement of another standing waits for its services."""


class Host(Protocol):
    """The part of a broker that its services use."""

    @property
    def log(self) -> IdentityLog:
        """The log of the broker."""

    @property
    def runtime(self) -> Runtime:
        """The world of the broker."""


class _Run:
    """A service, its plan, and what its loop waits for."""

    def __init__(self, service: Service, news: Event) -> None:
        self.service = service
        self.plan = Plan(service.standings, service.term)
        self.news = news


class Services:
    """Runs *services*, each in a loop of its own: one that takes long, or fails, delays no other.

    *on_begun* is called when `has_begun` becomes true.
    """

    def __init__(
        self, host: Host, services: Sequence[Service], *, on_begun: Callable[[], None]
    ) -> None:
        runtime = host.runtime
        self._host = host
        self._runs = [_Run(each, runtime.event()) for each in services]
        self._on_begun = on_begun
        self._role: Role | None = None
        self.has_begun = False
        """Whether the services of the present standing and epoch run, failed to start, or take
        longer than a second: then the broker is announced without them."""
        self._beginning = runtime.event()
        """Set as long as `has_begun`."""
        self._patience: Timer | None = None
        self._stepped = runtime.event()
        """Set when a step has ended."""
        self._tasks = runtime.tasks("services of a broker")

    def start(self, role: Role) -> None:
        """Begin to run services, in *role*."""
        for run in self._runs:
            self._tasks.start(self._keep(run), name=f"service {run.service.name}")
        self.take(role)

    def take(self, role: Role) -> None:
        """Stop what must not run in *role*, and start what must."""
        former, self._role = self._role, role
        if former is None or (former.standing, former.epoch) != (role.standing, role.epoch):
            self.has_begun = False
            self._beginning.clear()
            self._drop_patience()
            self._patience = self._host.runtime.later(_BEGUN_S, self._begin)
        self._plan(role)
        self._look_whether_begun()

    def _plan(self, role: Role | None) -> None:
        for run in self._runs:
            run.plan.take(role)
            run.news.set()

    async def begun(self) -> None:
        """Return once `has_begun`."""
        await self._beginning.wait()

    async def stopped(self) -> None:
        """Return when no service of a former role runs any more, or after 3 s: a service that does
        not stop is reported, and delays no role."""
        runtime = self._host.runtime
        end_ms = runtime.now_ms() + int(_STOPPED_S * 1000)
        while self._late and (left_ms := end_ms - runtime.now_ms()) > 0:
            self._stepped.clear()
            await self._stepped.wait(left_ms / 1000)
        for run in self._late:
            self._host.log.error(
                "the service %s of the former role has not stopped; the role changes without it",
                run.service.name,
            )

    @property
    def _late(self) -> list[_Run]:
        return [run for run in self._runs if run.plan.is_stop_due]

    async def close(self) -> None:
        """Stop every service. A second call does nothing."""
        self._role = None
        self._drop_patience()
        self._plan(None)
        await self.stopped()
        await self._tasks.close()

    @property
    def all(self) -> Sequence[Service]:
        """The services."""
        return [run.service for run in self._runs]

    def metrics(self) -> Iterator[Family]:
        """Yield the present metrics of every service."""
        for run in self._runs:
            yield from run.service.metrics()

    @property
    def troubles(self) -> Mapping[str, str]:
        """By the name of a service, why its last start or stop failed."""
        return {run.service.name: run.plan.trouble for run in self._runs if run.plan.trouble}

    # ---- one service

    async def _keep(self, run: _Run) -> None:
        runtime, plan = self._host.runtime, run.plan
        while True:
            run.news.clear()
            now_ms = runtime.now_ms()
            step = plan.next(now_ms)
            if step is not None:
                await self._carry_out(run, step)
                continue
            limit_s = None if plan.retry_ms is None else max(0, plan.retry_ms - now_ms) / 1000
            await run.news.wait(limit_s)

    async def _carry_out(self, run: _Run, step: Start | Stop) -> None:
        runtime, plan, service = self._host.runtime, run.plan, run.service
        plan.begins(step)
        work = self._tasks.start(self._work(service, step), name=f"{_verb(step)} of {service.name}")
        work.add_done_callback(lambda _: run.news.set())
        end_ms = runtime.now_ms() + int(_STEP_S * 1000)
        why = ""

        try:
            while not work.done():
                run.news.clear()
                if plan.is_obsolete(step):
                    why = "its role has ended"
                elif runtime.now_ms() >= end_ms:
                    why = f"it took longer than {_STEP_S:g} s"
                if why:
                    work.cancel()
                await run.news.wait(max(0.05, (end_ms - runtime.now_ms()) / 1000))
        finally:
            work.cancel()

        failure = why if work.cancelled() else work.result()
        if failure:
            plan.failed(step, runtime.now_ms(), failure)
            if not plan.is_obsolete(step):
                self._host.log.error(
                    "service %s: the %s failed, and is tried again: %s",
                    service.name,
                    _verb(step),
                    failure,
                )
        else:
            plan.done(step)
        self._stepped.set()
        self._look_whether_begun()

    async def _work(self, service: Service, step: Start | Stop) -> str:
        """Carries out a step; returns why it failed, "" where it did not."""
        try:
            if isinstance(step, Start):
                await service.start(step.role)
            else:
                await service.stop()
        except Exception as error:
            self._host.log.debug("service %s: %s", service.name, _verb(step), exc_info=error)
            return str(error) or type(error).__name__
        return ""

    # ---- the beginning of a role

    def _look_whether_begun(self) -> None:
        is_due = self._role is not None and not self.has_begun
        if is_due and all(run.plan.is_begun for run in self._runs):
            self._begin()

    def _begin(self) -> None:
        self._drop_patience()
        self.has_begun = True
        self._beginning.set()
        self._on_begun()

    def _drop_patience(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None


def _verb(step: Start | Stop) -> str:
    return "start" if isinstance(step, Start) else "stop"
