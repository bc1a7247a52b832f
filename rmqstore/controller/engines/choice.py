"""The engine that a configuration chooses."""

from __future__ import annotations

from rmqstore.config import ControllerConfig
from rmqstore.controller.engines.engine import Engine
from rmqstore.controller.engines.etcd import EtcdEngine
from rmqstore.controller.engines.own_file import OwnFileEngine
from rmqstore.controller.engines.raft import RaftEngine
from rmqstore.errors import ConfigError
from rmqstore.net.tls import TlsClient

__all__ = ["engine_of"]


def engine_of(config: ControllerConfig) -> Engine:
    """Return the engine of *config*, which is not started. Raises ConfigError."""
    if config.etcd_endpoints:
        context = None
        if config.etcd_trusted or config.etcd_certificate:
            context = TlsClient(
                trusted=config.etcd_trusted or None,
                certificate=config.etcd_certificate or None,
                key=config.etcd_key or None,
            ).context()
        return EtcdEngine(
            config.etcd_endpoints,
            prefix=config.etcd_prefix,
            node_id=config.self_id,
            lease_seconds=config.etcd_lease_seconds,
            context=context,
        )
    if not config.store_path:
        raise ConfigError(["controllerStorePath is empty; name a directory for the log"])
    if len(config.nodes) > 1:
        return RaftEngine(
            config.store_path,
            node_id=config.self_id,
            members={node: (host, port) for node, host, port in config.raft_nodes},
            bind_host=config.bind_address,
            founds=not config.raft_join,
        )
    return OwnFileEngine(config.store_path, node_id=config.self_id)
