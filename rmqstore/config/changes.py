"""Changes of a server's configuration by RocketMQ key, as requests and files hold them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from rmqstore.config.broker_config import BrokerConfig
from rmqstore.config.controller_config import ControllerConfig
from rmqstore.config.nameserver_config import NameserverConfig
from rmqstore.config.properties import format_properties, parse_properties

__all__ = ["ServerConfig", "with_changes"]

ServerConfig = TypeVar("ServerConfig", BrokerConfig, ControllerConfig, NameserverConfig)


def with_changes(config: ServerConfig, changes: Mapping[str, str]) -> ServerConfig:
    """Return *config* with *changes* by RocketMQ key. Raises ConfigError, for unknown keys too."""
    former = parse_properties(config.to_properties())
    return type(config).from_properties(format_properties({**former, **changes}), strict=True)
