"""Services of a broker, in virtual time: they follow its role, and no failure takes it along."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from rmqstore.broker.membership.roles import Role, Standing
from rmqstore.broker.services.service import Service
from rmqstore.broker.services.services import Services
from tests.support.virtual import VirtualProcess

LEADER = Role(name="master", broker_id=1, epoch=3)
SLAVE = Role(name="slave", broker_id=1, epoch=4, master_address=("10.0.0.2", 10911))
NONE = Role(broker_id=1)


class Host:
    """A broker without anything else."""

    def __init__(self) -> None:
        self.process = VirtualProcess()
        self.runtime = self.process.runtime
        self.log = self.runtime.log


class Recorded(Service):
    """Writes its calls down; *starts* and *stops* take as long as they say, or fail."""

    standings = frozenset({Standing.LEADING})

    def __init__(self, host: Host, name: str, story: list[str]) -> None:
        self.name = name  # type: ignore[misc]
        self._host = host
        self._story = story
        self.start_s: Callable[[], float] = lambda: 0.0
        self.stop_s: Callable[[], float] = lambda: 0.0

    def term(self, role: Role) -> int:
        return role.epoch

    async def start(self, role: Role) -> None:
        self._story.append(f"{self.name} starts in {role.epoch}")
        await self._host.runtime.sleep(self.start_s())
        self._story.append(f"{self.name} runs")

    async def stop(self) -> None:
        self._story.append(f"{self.name} stops")
        await self._host.runtime.sleep(self.stop_s())
        self._story.append(f"{self.name} has stopped")


def fail() -> float:
    raise OSError("no room")


class Stage:
    """Two services of one broker."""

    def __init__(self) -> None:
        self.host = Host()
        self.story: list[str] = []
        self.one = Recorded(self.host, "one", self.story)
        self.two = Recorded(self.host, "two", self.story)
        self.begun = 0
        self._do(self._begin)
        self.begun = 0

    def _begin(self) -> None:
        self.services = Services(self.host, [self.one, self.two], on_begun=self._count)
        self.services.start(NONE)

    def _count(self) -> None:
        self.begun += 1

    def _do(self, action: Callable[[], None]) -> None:
        self.host.process.loop.run(action)

    def take(self, role: Role, seconds: float = 0.0) -> None:
        self._do(lambda: self.services.take(role))
        self.host.process.pass_time(seconds + 0.001)

    def told(self) -> list[str]:
        told, self.story[:] = list(self.story), []
        return told


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_services_follow_the_role(stage: Stage) -> None:
    stage.take(SLAVE)
    assert (stage.told(), stage.begun) == ([], 1)
    stage.take(LEADER)
    assert stage.told() == ["one starts in 3", "two starts in 3", "one runs", "two runs"]
    assert stage.begun == 2
    stage.take(NONE)
    assert stage.told() == ["one stops", "two stops", "one has stopped", "two has stopped"]


def test_a_slow_start_delays_no_other_service(stage: Stage) -> None:
    stage.one.start_s = lambda: 5.0
    stage.take(LEADER)
    assert stage.told() == ["one starts in 3", "two starts in 3", "two runs"]
    assert stage.begun == 0
    stage.host.process.pass_time(1)
    assert (stage.told(), stage.begun) == ([], 1), "the announcement waits a second"
    stage.host.process.pass_time(4)
    assert (stage.told(), stage.begun) == (["one runs"], 1)


def test_another_set_of_the_same_role_is_no_other_beginning(stage: Stage) -> None:
    stage.take(LEADER)
    stage.take(replace(LEADER, members=frozenset({1, 2}), set_epoch=8))
    assert stage.services.has_begun
    assert stage.begun == 1


def test_a_start_that_fails_is_tried_again_and_the_role_has_begun(stage: Stage) -> None:
    stage.one.start_s = fail
    stage.take(LEADER)
    assert stage.services.troubles == {"one": "no room"}
    assert stage.begun == 1
    stage.one.start_s = lambda: 0.0
    stage.told()
    stage.host.process.pass_time(1.1)
    assert stage.told() == ["one starts in 3", "one runs"]
    assert stage.services.troubles == {}


def test_a_start_that_hangs_is_cancelled_at_the_end_of_its_role(stage: Stage) -> None:
    stage.one.start_s = lambda: 9.0
    stage.take(LEADER)
    stage.told()
    stage.take(NONE)
    assert stage.told() == ["two stops", "two has stopped", "one stops", "one has stopped"]
    stage.host.process.pass_time(20)
    assert stage.told() == []


def test_a_start_that_takes_too_long_is_cancelled_and_tried_again(stage: Stage) -> None:
    stage.one.start_s = lambda: 1000.0
    stage.take(LEADER, 10.5)
    assert stage.services.troubles == {"one": "it took longer than 10 s"}
    stage.one.start_s = lambda: 0.0
    stage.told()
    stage.host.process.pass_time(1.1)
    assert stage.told() == ["one starts in 3", "one runs"]


def test_a_change_of_role_waits_for_stops_up_to_a_limit(stage: Stage) -> None:
    stage.one.stop_s = lambda: 2.0
    stage.take(LEADER)
    stage.take(NONE)
    stage.told()
    began_ms = stage.host.process.now_ms()
    stage.host.process.run(stage.services.stopped())
    assert stage.told() == ["one has stopped"]
    assert 1900 <= stage.host.process.now_ms() - began_ms <= 2100


def test_a_stop_that_hangs_does_not_hold_the_role_up(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    stage.one.stop_s = lambda: 1000.0
    stage.take(LEADER)
    stage.take(NONE)
    began_ms = stage.host.process.now_ms()
    stage.host.process.run(stage.services.stopped())
    assert 2900 <= stage.host.process.now_ms() - began_ms <= 3100
    assert "service one of the former role has not stopped" in caplog.text


def test_no_run_begins_before_the_former_one_has_stopped(stage: Stage) -> None:
    stage.one.stop_s = lambda: 2.0
    stage.take(LEADER)
    stage.told()
    stage.take(Role(name="master", broker_id=1, epoch=7), 3)
    assert [line for line in stage.told() if line.startswith("one")] == [
        "one stops",
        "one has stopped",
        "one starts in 7",
        "one runs",
    ]


def test_the_close_stops_what_runs(stage: Stage) -> None:
    stage.two.start_s = lambda: 5.0
    stage.take(LEADER)
    stage.told()
    stage.host.process.run(stage.services.close())
    assert sorted(stage.told()) == ["one has stopped", "one stops", "two has stopped", "two stops"]
    stage.host.process.run(stage.services.close())
    assert stage.told() == []
