"""A group of brokers, each Java's or ours, under a controller of ours or of Java."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Mapping, Sequence
from pathlib import Path

from rmqstore.broker.metadata.tables import Tables
from rmqstore.broker.metadata.takeover import TakenTables, take_tables
from rmqstore.errors import RemotingError
from rmqstore.net.addresses import parse_address
from rmqstore.remoting.client import RemotingClient
from rmqstore.remoting.codes import RequestCode
from rmqstore.remoting.frames import Frame
from rmqstore.remoting.headers.administration import CommitOffsetRequestHeader
from tests.golden import RELEASES
from tests.support.either_broker import EitherBroker
from tests.support.java_broker import controller_settings
from tests.support.java_cluster import LIMIT_S, Broker, JavaCluster
from tests.support.java_replica import Replica
from tests.support.log_files import have_equal_logs
from tests.support.waiting import spin_until

_ASK_S = 10.0
_PAUSE_S = 0.1
_TABLES_PAUSE_S = 0.5
"""Between two looks at the tables, which a Java slave takes over every ten seconds only."""


class Controllers(enum.Enum):
    """Whose controller the group is under; each is one node."""

    NONE = "none"
    OURS = "ours"
    DLEDGER = "dledger"
    JRAFT = "jraft"


OURS = "ours"
"""Stands for our program among releases of Java's."""


class MixedCluster(JavaCluster):
    """A group with a nameserver of ours and a Java client of *release*.

    *programs* names the program of each broker: a release of Java's, or `OURS`. The broker that
    is alone of its kind becomes the master where logs are equal, so that both kinds lead soon.
    *settings* are those of all brokers.
    """

    def __init__(
        self,
        release: str,
        root: Path,
        *,
        controllers: Controllers,
        programs: Sequence[str],
        settings: Mapping[str, object] | None = None,
    ) -> None:
        self._controllers = controllers
        self._settings = settings or {}
        self._programs = programs
        super().__init__(release, root, brokers=len(programs))

    def _start(self, *, with_java_nameserver: bool) -> None:
        assert not with_java_nameserver, "the nameserver is ours"
        self.nameserver = self._ours("namesrv", self._nameserver_config())
        if self._controllers is Controllers.OURS:
            self.controllers = [self._ours("controller", self._controller_config(0))]
        elif self._controllers is not Controllers.NONE:
            self._start_java_controller().wait_ready(timeout=LIMIT_S)
        self.client = self.java("peer.cluster.Client", self.root / "client")
        self.members = [self._member(number) for number in range(len(self._programs))]
        self.brokers = [*self.members]
        for starting in [each.start() for each in self.members if each.is_java]:
            starting.wait_ready(timeout=LIMIT_S)
        for each in self.members:
            if not each.is_java:
                each.start()
        self.client.wait_ready(timeout=LIMIT_S)

    def _member(self, number: int) -> EitherBroker:
        program = self._programs[number]
        return EitherBroker(
            self,
            number,
            is_java=program != OURS,
            release=None if program == OURS else program,
            settings=self._settings_of(number),
        )

    def _settings_of(self, number: int) -> Mapping[str, object]:
        """Returns the settings of one broker that differ from those of the group."""
        kinds = [each == OURS for each in self._programs]
        is_alone = kinds.count(kinds[number]) == 1
        return {**self._settings, "brokerElectionPriority": 1 if is_alone else 2}

    def _start_java_controller(self) -> Replica:
        home = self.root / "java-controller"
        home.mkdir()
        [port] = self.controller_ports
        is_jraft = self._controllers is Controllers.JRAFT
        settings = controller_settings(self.server_host, port, home, is_jraft=is_jraft)
        config = home / "server.conf"
        config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        return self.java("peer.cluster.Server", home, "controller", config)

    def member(self, broker_id: int | None) -> EitherBroker:
        """Return the broker to which the controller gave an id."""
        assert broker_id is not None
        found = self.broker(broker_id)
        assert isinstance(found, EitherBroker)
        return found

    def change_metadata(self, broker: Broker, name: str) -> None:
        """Make a topic and a group of that name at *broker*, the master, and commit an offset."""
        at = ("-n", self.namesrv, "-b", broker.address)
        printed = self.admin("updateTopic", *at, "-t", name, "-r", "3", "-w", "3")
        assert f"create topic to {broker.address} success" in printed, printed
        printed = self.admin("updateSubGroup", *at, "-g", name, "-r", "4")
        assert f"create subscription group to {broker.address} success" in printed, printed
        header = CommitOffsetRequestHeader(topic=name, group=name, queue_id=1, offset=0)
        request = Frame.request(RequestCode.UPDATE_CONSUMER_OFFSET, header.to_fields())

        async def commit() -> None:
            async with RemotingClient() as client:
                address = parse_address(broker.address)
                (await client.call(address, request, _ASK_S)).raise_for_code()

        asyncio.run(commit())

    def wait_equal_metadata(self, names: Sequence[str], *, master: EitherBroker) -> None:
        """Return once all brokers have the same tables, with what was made by *names* in them.

        The versions are the same, too, but for a slave of 5.3.3 under a master that pages its
        tables, as ours and 5.5.0 do: it steps them for each topic that it takes over.
        """
        slaves = [each for each in self.members if each is not master]
        tables: list[TakenTables] = []
        why = ""

        def are_equal() -> bool:
            nonlocal why
            try:
                tables[:] = [asyncio.run(_tables_of(each.address)) for each in (master, *slaves)]
            except RemotingError as error:
                why = str(error)
                return False
            why = "; ".join(
                _difference(tables[0], found, with_versions=_keeps_versions(slave, master))
                for slave, found in zip(slaves, tables[1:], strict=True)
            ).strip("; ")
            return not why

        try:
            spin_until(are_equal, "equal tables", timeout=LIMIT_S, pause=_TABLES_PAUSE_S)
        except AssertionError as error:
            raise AssertionError(f"{error}; {why}") from None
        for each in tables:
            assert set(names) <= each.topics.topics.keys()
            assert set(names) <= each.groups.groups.keys()
            assert all(each.offsets.of(name, name) == {1: 0} for name in names)

    def wait_equal_logs(self) -> None:
        """Return once all logs hold the same bytes; no client may send any more."""
        roots = [each.log_path.parent for each in self.members]
        spin_until(lambda: have_equal_logs(*roots), "equal logs", timeout=LIMIT_S, pause=_PAUSE_S)


async def _tables_of(address: str) -> TakenTables:
    async with RemotingClient() as client:

        async def call(request: Frame) -> Frame:
            return await client.call(parse_address(address), request, _ASK_S)

        return await take_tables(call, Tables(wall_ms=lambda: 0).all, with_timer=False)


def _keeps_versions(slave: EitherBroker, master: EitherBroker) -> bool:
    is_old = slave.runs_java and slave.release == RELEASES[0]
    return not is_old or (master.runs_java and master.release == RELEASES[0])


def _difference(one: TakenTables, other: TakenTables, *, with_versions: bool) -> str:
    first, second = (_contents(each, with_versions=with_versions) for each in (one, other))
    unequal = [name for name in first if first[name] != second[name]]
    return "; ".join(f"{name}: {first[name]} and {second[name]}" for name in unequal)


def _contents(tables: TakenTables, *, with_versions: bool) -> Mapping[str, object]:
    found: dict[str, object] = {
        "topics": tables.topics.topics,
        "groups": tables.groups.groups,
        "offsets": tables.offsets.offsets,
    }
    if with_versions:
        found["versions"] = (tables.topics.data_version, tables.groups.data_version)
    return found
