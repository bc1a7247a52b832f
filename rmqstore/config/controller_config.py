"""The settings of a controller: one frozen value with RocketMQ's names and defaults."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from rmqstore.arguments import shown
from rmqstore.config import sources
from rmqstore.config.addresses import HOST, is_address
from rmqstore.config.options import (
    WORDS,
    MetricsExporter,
    Option,
    option,
    options_of,
    violations_of,
)
from rmqstore.config.replica_config import ReplicaConfig
from rmqstore.config.store_config import StoreConfig
from rmqstore.errors import ConfigError

__all__ = ["RAFT_PORT_DISTANCE", "ControllerConfig", "ControllerPeer"]

RAFT_PORT_DISTANCE = 1000
"""Default distance from a node's port to its port for the other nodes."""


class ControllerPeer(NamedTuple):
    """A node of a controller group."""

    node_id: str
    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerConfig:
    """The settings of a controller, read from RocketMQ's controller.conf.

    Each field holds an `Option` in its metadata: RocketMQ key, unit, default, limits, help.
    Defaults are those of RocketMQ 5.3.3 and 5.5.0, except for the directory, which must be named,
    and the peers: without peers the controller is a group of one node that listens at listenPort.
    The constructor raises one ConfigError that lists every violation.
    """

    # The group of controllers.
    group: str = option(
        "controllerDLegerGroup",
        "",
        help="name of the group of controllers",
        effect="answers to GET_METADATA_INFO",
    )
    peers: str = option(
        "controllerDLegerPeers",
        "",
        help="nodes of the group, as in n0-10.0.0.1:9878;n1-10.0.0.2:9878",
        effect="start",
    )
    self_id: str = option(
        "controllerDLegerSelfId",
        "n0",
        help="this node among the peers",
        effect="start",
    )
    bind_address: str = option(
        "bindAddress",
        "0.0.0.0",
        codec=HOST,
        help="address that brokers connect to",
        effect="start",
    )
    listen_port: int = option(
        "listenPort",
        19876,
        high=65535,
        help="port that brokers connect to, without peers; 0 for any free port",
        effect="start",
    )
    store_path: str = option(
        "controllerStorePath",
        "",
        help="directory of the log",
        effect="start",
    )
    raft_peers: str = option(
        "controllerRaftPeers",
        "",
        help="addresses at which the nodes of a group reach each other, as in "
        "n0-10.0.0.1:10878;n1-10.0.0.2:10878; the peers with 1000 added to each port where it is "
        "empty",
        effect="start, with several peers and no etcdEndpoints",
    )
    raft_join: bool = option(
        "controllerRaftJoin",
        False,
        help="copy the log from the other nodes: for a node whose directory was lost",
        effect="start with a new directory, with several peers and no etcdEndpoints",
    )

    # etcd. These keys are not RocketMQ's.
    etcd_endpoints: tuple[str, ...] = option(
        "etcdEndpoints",
        (),
        help="members of an etcd cluster that keeps the log, as in http://10.0.0.1:2379;"
        "http://10.0.0.2:2379",
        effect="start",
        codec=WORDS,
    )
    etcd_prefix: str = option(
        "etcdPrefix",
        "rmqstore/controller",
        help="first part of the keys in etcd; each group of controllers has its own",
        effect="start, with etcdEndpoints",
    )
    etcd_lease_seconds: int = option(
        "etcdLeaseSeconds",
        5,
        "s",
        low=1,
        high=3600,
        help="time without a sign of life after which another node leads",
        effect="start, with etcdEndpoints",
    )
    etcd_trusted: str = option(
        "etcdTrustedCertificates",
        "",
        help="file of the certificates that sign those of https endpoints; the system's where it "
        "is empty",
        effect="start, with etcdEndpoints",
    )
    etcd_certificate: str = option(
        "etcdCertificate",
        "",
        help="file of the certificate that etcd receives",
        effect="start, with etcdEndpoints",
    )
    etcd_key: str = option(
        "etcdKey",
        "",
        help="file of the certificate's key",
        effect="start, with etcdEndpoints",
    )

    # Brokers.
    scan_brokers_interval_ms: int = option(
        "scanNotActiveBrokerInterval",
        5000,
        "ms",
        low=10,
        help="time between two searches for brokers that sent no heartbeat",
        effect="each search",
    )
    scan_masters_interval_ms: int = option(
        "scanInactiveMasterInterval",
        5000,
        "ms",
        low=10,
        help="time between two searches for groups without a living master, besides heartbeats",
        effect="each search",
    )
    elect_unclean_master: bool = option(
        "enableElectUncleanMaster",
        False,
        help="elect a replica that may lack acknowledged messages if no other can be elected",
        effect="elections",
    )
    read_barrier: bool = option(
        "isProcessReadEvent",
        False,
        help="confirm that this node leads before it answers a read",
        effect="GET_REPLICA_INFO, GET_SYNC_STATE_DATA, GET_NEXT_BROKER_ID",
    )
    notify_role_changed: bool = option(
        "notifyBrokerRoleChanged",
        True,
        help="notify brokers of a new master",
        effect="elections",
    )

    # Metrics.
    metrics_exporter: MetricsExporter = option(  # noqa: RUF009
        "metricsExporterType",
        MetricsExporter.DISABLE,
        help="how metrics are exported: PROM serves them to Prometheus; OTLP_GRPC and LOG have no "
        "effect here",
        effect="start",
    )
    metrics_host: str = option(
        "metricsPromExporterHost",
        "",
        codec=HOST,
        help="address that serves metrics; bindAddress where it is empty",
        effect="start, with metricsExporterType=PROM",
    )
    metrics_port: int = option(
        "metricsPromExporterPort",
        5557,
        high=65535,
        help="port that serves metrics; 0 for any free port",
        effect="start, with metricsExporterType=PROM",
    )

    # Configuration.
    config_store_path: str = option(
        "configStorePath",
        "",
        help="file of the settings that requests changed, written by them and read at the start; "
        "without it they change the file of -c",
        effect="start, and UPDATE_CONTROLLER_CONFIG",
    )
    config_black_list: tuple[str, ...] = option(
        "configBlackList",
        ("configBlackList", "configStorePath"),
        help="keys that UPDATE_CONTROLLER_CONFIG must not change, separated by ;",
        effect="UPDATE_CONTROLLER_CONFIG",
        codec=WORDS,
    )

    def __post_init__(self) -> None:
        violations = violations_of(self) or [
            *_peer_violations("controllerDLegerPeers (peers)", self.peers, self.self_id),
            *_raft_violations(self.raft_peers, self.peers, has_etcd=bool(self.etcd_endpoints)),
            *_etcd_violations(self.etcd_endpoints, self.etcd_certificate, self.etcd_key),
        ]
        if violations:
            raise ConfigError(violations)

    @property
    def nodes(self) -> tuple[ControllerPeer, ...]:
        """The nodes of the group; empty without peers."""
        return tuple(_peer(each) for each in _parts(self.peers))

    @property
    def raft_nodes(self) -> tuple[ControllerPeer, ...]:
        """The addresses at which the nodes of a group reach each other."""
        if self.raft_peers:
            return tuple(_peer(each) for each in _parts(self.raft_peers))
        return tuple(each._replace(port=each.port + RAFT_PORT_DISTANCE) for each in self.nodes)

    @property
    def own_node(self) -> ControllerPeer | None:
        """This node among the peers; None without peers."""
        return next((each for each in self.nodes if each.node_id == self.self_id), None)

    @classmethod
    def options(cls) -> Mapping[str, Option]:
        """Return the RocketMQ side of every field, by field name."""
        return options_of(cls)

    @classmethod
    def from_properties(
        cls,
        path_or_text: str | os.PathLike[str],
        *,
        beside: Mapping[str, Option] | None = None,
        strict: bool = False,
    ) -> ControllerConfig:
        """Return the settings of RocketMQ's controller.conf: a path, or text with a line break or
        `=`.

        Raises one ConfigError that lists every mistake. An unknown key is a mistake if it is one
        letter away from a known key, or with *strict*. One warning names the keys that have no
        effect on a controller, unless another part, with the options *beside*, reads the same file
        and names them.
        """
        text, name = sources.source_of(path_or_text, encoding="iso-8859-1")
        shared = {about.key for about in (beside or {}).values()}
        settings = sources.from_properties(
            text, cls.options(), known=_OTHER_KEYS | shared, strict=strict
        )
        (config,) = sources.build(settings, (cls,), source=name)
        if beside is None:
            sources.warn(settings, name, used=cls.options())
        assert isinstance(config, cls)
        return config

    def to_properties(self) -> str:
        """Return every setting as a controller.conf; from_properties reads the same value back."""
        return sources.to_properties(self)

    def replace(self, **changes: Any) -> ControllerConfig:
        """Return a copy with *changes* by field name. Raises ConfigError for unknown names and bad
        values."""
        sources.check_names(changes, self.options())
        return replace(self, **changes)


_OTHER_KEYS = frozenset(
    about.key for part in (StoreConfig, ReplicaConfig) for about in part.options().values()
)


def _parts(peers: str) -> list[str]:
    return [each.strip() for each in peers.split(";") if each.strip()]


def _peer(text: str) -> ControllerPeer:
    """Returns the node that "n0-host:port" names. Raises ValueError."""
    node_id, _, place = text.partition("-")
    if not node_id or not is_address(place, low_port=0):
        raise ValueError(text)
    host, _, port = place.rpartition(":")
    return ControllerPeer(node_id, host, int(port))


def _raft_violations(raft_peers: str, peers: str, *, has_etcd: bool) -> list[str]:
    """Returns the mistakes in the addresses of the nodes of a group. Mistakes in *peers* are found
    elsewhere."""
    try:
        nodes = [_peer(each) for each in _parts(peers)]
    except ValueError:
        return []
    if raft_peers:
        violations = _peer_violations("controllerRaftPeers (raft_peers)", raft_peers, None)
        if violations:
            return violations
        ids = sorted(_peer(each).node_id for each in _parts(raft_peers))
        if ids != sorted(each.node_id for each in nodes):
            return [
                f"controllerRaftPeers (raft_peers): it names {', '.join(ids)}; name each node of "
                "controllerDLegerPeers"
            ]
    elif len(nodes) > 1 and not has_etcd:
        bad = [each.port for each in nodes if not 0 < each.port <= 65535 - RAFT_PORT_DISTANCE]
        if bad:
            return [
                f"controllerDLegerPeers (peers): {bad[0]} + {RAFT_PORT_DISTANCE} is not a port for "
                "the other nodes; name their addresses in controllerRaftPeers"
            ]
    return []


def _peer_violations(name: str, peers: str, self_id: str | None) -> list[str]:
    nodes = []
    for each in _parts(peers):
        try:
            nodes.append(_peer(each))
        except ValueError:
            return [
                f"{name}: {shown(each, typed=False)} is not a node; give an "
                "id, a host and a port, as in n0-10.0.0.1:9878, and separate nodes by ;"
            ]

    ids = [each.node_id for each in nodes]
    if len(set(ids)) < len(ids):
        return [f"{name}: an id occurs twice: {', '.join(ids)}; correct it"]
    if ids and self_id is not None and self_id not in ids:
        return [
            f"controllerDLegerSelfId (self_id): {shown(self_id, typed=False)} is not among the "
            f"peers {', '.join(ids)}; correct it"
        ]

    return []


def _etcd_violations(endpoints: tuple[str, ...], certificate: str, key: str) -> list[str]:
    violations = [
        f"etcdEndpoints (etcd_endpoints): {shown(each, typed=False)} is not the URL of an etcd "
        "member; give one as in http://10.0.0.1:2379"
        for each in endpoints
        if not _is_member_url(each)
    ]
    if bool(certificate) != bool(key):
        violations.append(
            "etcdCertificate (etcd_certificate), etcdKey (etcd_key): only one of them is set; give "
            "both or neither"
        )
    return violations


def _is_member_url(url: str) -> bool:
    parts = urlsplit(url)
    try:
        return parts.scheme in ("http", "https") and bool(parts.hostname) and bool(parts.port)
    except ValueError:
        return False
