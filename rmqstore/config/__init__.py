"""The settings of a store, its replicas and servers, and the files and variables they come from."""

from rmqstore.config.broker_config import BrokerConfig
from rmqstore.config.changes import with_changes
from rmqstore.config.configuration import Configuration
from rmqstore.config.controller_config import ControllerConfig, ControllerPeer
from rmqstore.config.nameserver_config import NameserverConfig
from rmqstore.config.options import (
    BrokerRole,
    ConsumptionMode,
    FlushDiskType,
    MetricsExporter,
    Option,
    format_delay_levels,
    parse_delay_levels,
)
from rmqstore.config.properties import format_properties, parse_properties, without_mark
from rmqstore.config.replica_config import ReplicaConfig
from rmqstore.config.store_config import Compatibility, StoreConfig
from rmqstore.config.tls_config import ClientAuth, TlsConfig, TlsMode

__all__ = [
    "BrokerConfig",
    "BrokerRole",
    "ClientAuth",
    "Compatibility",
    "Configuration",
    "ConsumptionMode",
    "ControllerConfig",
    "ControllerPeer",
    "FlushDiskType",
    "MetricsExporter",
    "NameserverConfig",
    "Option",
    "ReplicaConfig",
    "StoreConfig",
    "TlsConfig",
    "TlsMode",
    "format_delay_levels",
    "format_properties",
    "parse_delay_levels",
    "parse_properties",
    "with_changes",
    "without_mark",
]
