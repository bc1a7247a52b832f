"""The requests of an operator to controllers, under the names of mqadmin.

    async with ControllerAdmin("10.0.0.1:9878;10.0.0.2:9878") as admin:
        [group] = await admin.sync_state_sets(["broker-a"])

The addresses are those of one group of controllers. Requests that only the leader serves go to the
leader, which each controller can name.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from rmqstore.admin.servers import Change, ServerAdmin
from rmqstore.config import format_properties
from rmqstore.errors import RemotingError
from rmqstore.exports import renamed_parameter
from rmqstore.net.addresses import Address
from rmqstore.net.tls import TlsClient
from rmqstore.remoting import fastjson
from rmqstore.remoting.bodies.controller import Elected, ReplicasInfo, decode_sync_state_data
from rmqstore.remoting.codes import RequestCode
from rmqstore.remoting.frames import Frame
from rmqstore.remoting.headers.controller import (
    CleanBrokerDataRequestHeader,
    ElectMasterRequestHeader,
    GetControllerMetadataResponseHeader,
    MasterHeader,
)
from rmqstore.typed_calls import typed

__all__ = ["CONTROLLER_PORT", "ControllerAdmin", "Election"]

CONTROLLER_PORT = 9878
"""The port of an address without one."""


@dataclass(frozen=True, slots=True)
class Election:
    """An election that took effect."""

    master: MasterHeader
    elected: Elected
    risk: str
    """The messages that may be lost. Empty if there are none, and from RocketMQ's controllers."""


@typed()
class ControllerAdmin(ServerAdmin):
    """Sends requests to the controllers of *addresses*, "host:port" separated by `;`, or one pair.

    Each call takes *timeout* seconds at most for each controller. *tls* makes connections use
    TLS. Raises ArgumentError for an invalid address. The calls raise RemotingError where no
    controller answers, where no controller knows a leader, or where the answer is a refusal.
    """

    @renamed_parameter("timeout_s", "timeout")
    def __init__(
        self, addresses: str | Address, *, timeout: float = 5.0, tls: TlsClient | None = None
    ) -> None:
        super().__init__(
            addresses,
            server="controller",
            default_port=CONTROLLER_PORT,
            timeout=timeout,
            tls=tls,
        )

    async def metadata(self) -> GetControllerMetadataResponseHeader:
        """Return the group, its leader and its peers, from the first controller that answers."""
        answer = await self._query(RequestCode.CONTROLLER_GET_METADATA_INFO)
        return GetControllerMetadataResponseHeader.from_fields(answer.raise_for_code().ext_fields)

    async def sync_state_sets(self, names: Collection[str]) -> Sequence[ReplicasInfo]:
        """Return masters and sync-state sets of the groups *names*; unknown groups are left out."""
        body = fastjson.dumps(sorted(names))
        answer = await self._call_leader(RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, body=body)
        found = decode_sync_state_data(answer.raise_for_code().body)
        return [info for _, info in sorted(found.items())]

    async def elect_master(self, cluster: str, broker_name: str, broker_id: int) -> Election:
        """Make a broker of a group its master, even where acknowledged messages may be lost.

        *broker_id* is the id that the controller gave.
        """
        header = ElectMasterRequestHeader(
            cluster_name=cluster, broker_name=broker_name, broker_id=broker_id, is_designated=True
        )
        answer = await self._call_leader(RequestCode.CONTROLLER_ELECT_MASTER, header.to_fields())
        answer.raise_for_code()
        return Election(
            MasterHeader.from_fields(answer.ext_fields),
            Elected.decode(answer.body),
            answer.remark or "",
        )

    async def clean_broker_metadata(
        self,
        broker_name: str,
        *,
        cluster: str | None = None,
        broker_ids: str | None = None,
        cleans_living: bool = False,
    ) -> None:
        """Remove brokers of a group from the controller, *broker_ids* as in "1;3", None for all.

        Live brokers are removed only with *cleans_living*; RocketMQ's controllers then remove all
        brokers of the group.
        """
        header = CleanBrokerDataRequestHeader(
            cluster_name=cluster,
            broker_name=broker_name,
            broker_ids=broker_ids,
            cleans_living=cleans_living,
        )
        (
            await self._call_leader(RequestCode.CLEAN_BROKER_DATA, header.to_fields())
        ).raise_for_code()

    async def get_config(self) -> Mapping[str, Mapping[str, str]]:
        """Return the configuration of every controller by its address."""
        return await self._configurations(RequestCode.GET_CONTROLLER_CONFIG)

    async def update_config(self, key: str, value: str) -> Sequence[Change]:
        """Change one key of every controller's configuration."""
        body = format_properties({key: value}).encode()
        return await self._change(RequestCode.UPDATE_CONTROLLER_CONFIG, None, body)

    async def _call_leader(
        self, code: int, fields: Mapping[str, str] | None = None, body: bytes = b""
    ) -> Frame:
        """Return the answer of the leader, with any code."""
        return await self._call(await self._leader(), code, fields, body)

    async def _leader(self) -> str:
        reasons = []
        for address in self.addresses:
            try:
                answer = await self._call(address, RequestCode.CONTROLLER_GET_METADATA_INFO)
                fields = answer.raise_for_code().ext_fields
                found = GetControllerMetadataResponseHeader.from_fields(fields)
            except RemotingError as error:
                reasons.append(str(error))
                continue
            # The leader's own address may not be reachable from here; *address* is.
            leader = address if found.is_leader else found.leader_address
            if leader:
                return leader
            reasons.append(f"{address} knows no leader")
        raise RemotingError("no controller leads: " + "; ".join(reasons))
