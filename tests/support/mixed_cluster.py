"""A group of two brokers, each Java's or ours, under a controller of ours or of Java."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Mapping, Sequence
from pathlib import Path

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

    OURS = "ours"
    DLEDGER = "dledger"
    JRAFT = "jraft"


class MixedCluster(JavaCluster):
    """A group with a nameserver of ours and a Java client. *are_java* says which brokers begin as
    Java's."""

    def __init__(
        self,
        release: str,
        root: Path,
        *,
        controllers: Controllers,
        are_java: Sequence[bool] = (True, False),
    ) -> None:
        self._controllers = controllers
        self._are_java = are_java
        super().__init__(release, root)

    def _start(self, *, with_java_nameserver: bool) -> None:
        assert not with_java_nameserver, "the nameserver is ours"
        self.nameserver = self._ours("namesrv", self._nameserver_config())
        if self._controllers is Controllers.OURS:
            self.controllers = [self._ours("controller", self._controller_config(0))]
        else:
            self._start_java_controller().wait_ready(timeout=LIMIT_S)
        self.client = self.java("peer.cluster.Client", self.root / "client")
        self.members = [
            EitherBroker(self, number, is_java=each) for number, each in enumerate(self._are_java)
        ]
        self.brokers = [*self.members]
        for starting in [each.start() for each in self.members if each.is_java]:
            starting.wait_ready(timeout=LIMIT_S)
        for each in self.members:
            if not each.is_java:
                each.start()
        self.client.wait_ready(timeout=LIMIT_S)

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
        """Return once both brokers have the same tables, with what was made by *names* in them.

        The versions are the same, too, but for a slave of 5.3.3: it steps them for each topic that
        it takes over.
        """
        has_versions = master.runs_java or self.release != RELEASES[0]
        tables: list[TakenTables] = []
        why = ""

        def are_equal() -> bool:
            nonlocal why
            try:
                tables[:] = [asyncio.run(_tables_of(each.address)) for each in self.brokers]
            except RemotingError as error:
                why = str(error)
                return False
            one, other = (_contents(each, with_versions=has_versions) for each in tables)
            why = "; ".join(
                f"{name}: {one[name]} and {other[name]}" for name in one if one[name] != other[name]
            )
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
        """Return once both logs hold the same bytes; nobody may send any more."""
        one, other = (self.root / f"broker-{number}" / "store" for number in range(2))
        spin_until(
            lambda: have_equal_logs(one, other), "equal logs", timeout=LIMIT_S, pause=_PAUSE_S
        )


async def _tables_of(address: str) -> TakenTables:
    async with RemotingClient() as client:

        async def call(request: Frame) -> Frame:
            return await client.call(parse_address(address), request, _ASK_S)

        return await take_tables(call, with_timer=False)


def _contents(tables: TakenTables, *, with_versions: bool) -> Mapping[str, object]:
    found: dict[str, object] = {
        "topics": tables.topics.topics,
        "groups": tables.groups.groups,
        "offsets": tables.offsets.offsets,
    }
    if with_versions:
        found["versions"] = (tables.topics.data_version, tables.groups.data_version)
    return found
