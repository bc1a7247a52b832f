"""The settings of a nameserver: one frozen value with RocketMQ's names and defaults."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from rmqstore.config import sources
from rmqstore.config.addresses import HOST
from rmqstore.config.controller_config import ControllerConfig
from rmqstore.config.options import (
    WORDS,
    MetricsExporter,
    Option,
    option,
    options_of,
    same_option,
    violations_of,
)
from rmqstore.config.replica_config import ReplicaConfig
from rmqstore.config.store_config import StoreConfig
from rmqstore.errors import ConfigError

__all__ = ["NameserverConfig"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NameserverConfig:
    """The settings of a nameserver, read from RocketMQ's namesrv.conf.

    Each field holds an `Option` in its metadata: RocketMQ key, unit, default, limits, help.
    Defaults are those of RocketMQ 5.3.3 and 5.5.0, except for the paths: without a path nothing is
    stored. The constructor raises one ConfigError that lists every violation.
    """

    # Listening.
    bind_address: str = option(
        "bindAddress",
        "0.0.0.0",
        codec=HOST,
        help="address that brokers and clients connect to",
        effect="start",
    )
    listen_port: int = option(
        "listenPort",
        9876,
        high=65535,
        help="port that brokers and clients connect to; 0 for any free port",
        effect="start",
    )
    idle_seconds_max: int = option(
        "serverChannelMaxIdleTimeSeconds",
        120,
        "s",
        low=1,
        help="time without a byte in either direction after which a connection is closed",
        effect="start",
    )

    # Brokers.
    scan_interval_ms: int = option(
        "scanNotActiveBrokerInterval",
        5000,
        "ms",
        low=10,
        help="time between two searches for brokers without a sign of life",
        effect="each search",
    )
    acting_master: bool = option(
        "supportActingMaster",
        False,
        help="without a live master, show the live slave with the smallest id as read-only master",
        effect="routes of groups with enableSlaveActingMaster",
    )
    notify_min_broker_id: bool = option(
        "notifyMinBrokerIdChanged",
        False,
        help="notify the brokers of a group when the smallest live id changes",
        effect="registrations, and brokers that leave",
    )
    delete_topics: bool = option(
        "deleteTopicWithBrokerRegistration",
        False,
        help="remove topics of a broker that its registrations have not named for 2 minutes",
        effect="registrations",
    )

    # Answers.
    wait_for_service: bool = option(
        "needWaitForService",
        False,
        help="refuse routes for waitSecondsForService after the start",
        effect="routes",
    )
    wait_for_service_seconds: int = option(
        "waitSecondsForService",
        45,
        "s",
        help="time after the start in which routes are refused",
        effect="routes, with needWaitForService",
    )
    order_topics: bool = option(
        "orderMessageEnable",
        False,
        help="add the order configuration of a topic to its route",
        effect="routes",
    )
    return_order_topics: bool = option(
        "returnOrderTopicConfigToBroker",
        True,
        help="send the order configuration of all topics to brokers",
        effect="answers to registrations",
    )
    all_topic_list: bool = option(
        "enableAllTopicList",
        True,
        help="answer the request for all topics",
        effect="GET_ALL_TOPIC_LIST_FROM_NAMESERVER",
    )
    topic_list: bool = option(
        "enableTopicList",
        True,
        help="answer requests for the topics of a cluster and of unit mode",
        effect="GET_TOPICS_BY_CLUSTER and the lists of unit mode",
    )

    # The controller in the same process.
    controller_in_namesrv: bool = option(
        "enableControllerInNamesrv",
        False,
        help="run a controller in the same process, with the keys of controller.conf in this file",
        effect="serve namesrv",
    )

    # Metrics.
    metrics_exporter: MetricsExporter = same_option(  # noqa: RUF009
        ControllerConfig, "metrics_exporter"
    )
    metrics_host: str = same_option(ControllerConfig, "metrics_host")
    metrics_port: int = same_option(ControllerConfig, "metrics_port")

    # Files.
    kv_config_path: str = option(
        "kvConfigPath",
        "",
        help="file of the key-value configuration; if empty, it is in memory only",
        effect="start, and each change",
    )
    config_store_path: str = option(
        "configStorePath",
        "",
        help="file of the settings that requests changed, written by them and read at the start; "
        "without it they change the file of -c",
        effect="start, and UPDATE_NAMESRV_CONFIG",
    )
    config_black_list: tuple[str, ...] = option(
        "configBlackList",
        (),
        help="further keys that UPDATE_NAMESRV_CONFIG must not change, separated by ;",
        effect="UPDATE_NAMESRV_CONFIG",
        codec=WORDS,
    )

    def __post_init__(self) -> None:
        violations = violations_of(self)
        if violations:
            raise ConfigError(violations)

    @classmethod
    def options(cls) -> Mapping[str, Option]:
        """Return the RocketMQ side of every field, by field name."""
        return options_of(cls)

    @classmethod
    def from_properties(
        cls, path_or_text: str | os.PathLike[str], *, strict: bool = False
    ) -> NameserverConfig:
        """Return the settings of RocketMQ's namesrv.conf: a path, or text with a line break or `=`.

        Raises one ConfigError that lists every mistake. An unknown key is a mistake if it is one
        letter away from a known key, or with *strict*. One warning names the keys that have no
        effect on a nameserver.
        """
        text, name = sources.source_of(path_or_text, encoding="iso-8859-1")
        settings = sources.from_properties(text, cls.options(), known=_OTHER_KEYS, strict=strict)
        (config,) = sources.build(settings, (cls,), source=name)
        if config.controller_in_namesrv:
            settings.share(ControllerConfig.options())
        sources.warn(settings, name, used=cls.options())
        assert isinstance(config, cls)
        return config

    def to_properties(self) -> str:
        """Return every setting as a namesrv.conf; from_properties reads the same value back."""
        return sources.to_properties(self)

    def replace(self, **changes: Any) -> NameserverConfig:
        """Return a copy with *changes* by field name. Raises ConfigError for unknown names and bad
        values."""
        sources.check_names(changes, self.options())
        return replace(self, **changes)


_OTHER_KEYS = frozenset(
    about.key for part in (StoreConfig, ReplicaConfig) for about in part.options().values()
)
