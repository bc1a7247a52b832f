"""The settings of a broker: one frozen value with RocketMQ's names and defaults."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from rmqstore import arguments
from rmqstore.address import address_text
from rmqstore.config import sources
from rmqstore.config.addresses import ADDRESSES, HOST
from rmqstore.config.controller_config import ControllerConfig
from rmqstore.config.options import (
    INT64_MAX,
    BrokerRole,
    ConsumptionMode,
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
from rmqstore.permissions import PERM_ALL, PERM_READ_WRITE

__all__ = ["BrokerConfig"]

_LEASE_MS = 3000


@dataclass(frozen=True, slots=True, kw_only=True, init=False)
class BrokerConfig:
    """The settings of a broker, read from RocketMQ's broker.conf, including those of its store and
    its replica.

    Each field but *store* and *replica* holds an `Option` in its metadata: RocketMQ key, unit,
    default, limits, help. Defaults are those of RocketMQ 5.3.3 and 5.5.0. The constructor raises
    one ConfigError that lists every violation.
    """

    store: StoreConfig = field(default_factory=StoreConfig)
    replica: ReplicaConfig = field(default_factory=ReplicaConfig)

    # Identity.
    cluster_name: str = option(
        "brokerClusterName",
        "DefaultCluster",
        help="name of the cluster",
        effect="start; registration; a topic of this name",
    )
    name: str = option(
        "brokerName",
        "",
        help="name of the group of this broker and its replicas; the host's name where it is empty",
        effect="start; registration; a topic of this name",
    )
    broker_id: int = option(
        "brokerId",
        0,
        low=-1,
        high=INT64_MAX,
        help="id of a slave in its group, above 0; a master has 0, and with enableControllerMode "
        "the controller assigns it",
        effect="start; registration, with brokerRole SLAVE",
    )
    host: str = option(
        "brokerIP1",
        "",
        codec=HOST,
        help="address or host's name that clients connect to; where it is empty, bindAddress, or "
        "an address of this machine that other machines reach",
        effect="start; registration; records and message ids",
    )
    listen_port: int = option(
        "listenPort",
        10911,
        high=65535,
        help="port that clients connect to, and a second port two below it; 0 for any free ports",
        effect="start; registration",
    )
    bind_address: str = option(
        "bindAddress",
        "0.0.0.0",
        codec=HOST,
        help="address of the network interface to listen at, for clients and slaves",
        effect="start",
    )
    permission: int = option(
        "brokerPermission",
        PERM_READ_WRITE,
        high=PERM_ALL,
        help="permission: 4 for reading, 2 for writing, 6 for both",
        effect="sends, pulls and registration",
    )

    # Nameservers.
    nameservers: tuple[str, ...] = option(
        "namesrvAddr",
        (),
        help="nameservers to register at, as in 10.0.0.1:9876;10.0.0.2:9876",
        effect="registration",
        codec=ADDRESSES,
    )
    nameservers_by_dns: bool = option(
        "fetchNameSrvAddrByDnsLookup",
        False,
        help="register at all addresses that the names in namesrvAddr have, looked up every 2 "
        "minutes",
        effect="registration",
    )
    registration_interval_ms: int = option(
        "registerNameServerPeriod",
        30_000,
        "ms",
        help="time between two registrations, limited to 10 s to 60 s",
        effect="registration",
    )
    registration_timeout_ms: int = option(
        "registerBrokerTimeoutMills",
        24_000,
        "ms",
        low=1,
        help="longest wait for the answer to a registration",
        effect="registration",
    )
    force_register: bool = option(
        "forceRegister",
        True,
        help="register without first comparing versions with the nameserver",
        effect="registration",
    )
    heartbeat_interval_ms: int = option(
        "brokerHeartbeatInterval",
        1000,
        "ms",
        low=10,
        help="time between two heartbeats",
        effect="controllers; nameservers, with enableSlaveActingMaster",
    )
    heartbeat_timeout_ms: int = option(
        "sendHeartbeatTimeoutMillis",
        1000,
        "ms",
        low=1,
        help="longest time to send a heartbeat",
        effect="controllers and nameservers",
    )
    not_active_timeout_ms: int = option(
        "brokerNotActiveTimeoutMillis",
        10_000,
        "ms",
        low=1,
        help="time without a sign of life after which a nameserver removes this broker",
        effect="registration, with enableSlaveActingMaster",
    )
    member_group_interval_ms: int = option(
        "syncBrokerMemberGroupPeriod",
        1000,
        "ms",
        low=10,
        help="time between two queries for the living members of the group",
        effect="number of living replicas, with enableSlaveActingMaster; slaves asked by a master "
        "that waits",
    )
    others_asked_epoch: int = option(
        "othersAskedEpoch",
        -1,
        low=-1,
        help="an operator's statement that the slaves were compared and this broker, which waits, "
        "is to lead in this epoch, the one that its warning names",
        effect="while a master waits, without enableControllerMode",
    )
    compatible_with_old_nameserver: bool = option(
        "compatibleWithOldNameSrv",
        True,
        help="also use the requests that nameservers before 5.0 know",
        effect="heartbeats and members at nameservers, with enableSlaveActingMaster",
    )

    # Controllers.
    controllers: tuple[str, ...] = option(
        "controllerAddr",
        (),
        help="controllers, as in 10.0.0.1:9878;10.0.0.2:9878",
        effect="with enableControllerMode",
        codec=ADDRESSES,
    )
    controllers_by_dns: bool = option(
        "fetchControllerAddrByDnsLookup",
        False,
        help="use all addresses that the names in controllerAddr have, looked up every 2 minutes",
        effect="with enableControllerMode",
    )
    identity_path: str = option(
        "storePathBrokerIdentity",
        "",
        help="file of the id that the controller assigned; `brokerIdentity` in the store's "
        "directory where it is empty",
        effect="start, with enableControllerMode",
    )
    controller_metadata_interval_ms: int = option(
        "syncControllerMetadataPeriod",
        10_000,
        "ms",
        low=10,
        help="time between two searches for the leading controller",
        effect="with enableControllerMode",
    )
    group_poll_interval_ms: int = option(
        "syncBrokerMetadataPeriod",
        5000,
        "ms",
        low=10,
        help="time between two requests for the master and the sync-state set",
        effect="with enableControllerMode",
    )
    controller_heartbeat_timeout_ms: int = option(
        "controllerHeartBeatTimeoutMills",
        10_000,
        "ms",
        low=1,
        help="time without a heartbeat after which the controller elects another master",
        effect="heartbeats and lease, with enableControllerMode",
    )
    lease_ms: int = option(
        "masterLeaseMillis",
        -1,
        "ms",
        low=-1,
        help="time for which a master acknowledges after the last answer of a controller; 0 for no "
        "limit, with allAckInSyncStateSet or one copy only; -1 for 3 s or 3 heartbeats, the "
        "longer, but 70 % of controllerHeartBeatTimeoutMills at most",
        effect="start; lease of a master, with enableControllerMode",
    )
    election_priority: int = option(
        "brokerElectionPriority",
        2**31 - 1,
        help="preference in elections; the lowest wins among equal logs",
        effect="heartbeats, with enableControllerMode",
    )

    # Topics and groups.
    create_topics: bool = option(
        "autoCreateTopicEnable",
        True,
        help="create an unknown topic when a message is sent to it",
        effect="sends",
    )
    create_groups: bool = option(
        "autoCreateSubscriptionGroup",
        True,
        help="create an unknown group when a consumer names it",
        effect="pulls and heartbeats of consumers",
    )
    topic_queue_count: int = option(
        "defaultTopicQueueNums",
        8,
        "queues",
        low=1,
        high=65_536,
        help="largest number of queues of a topic that a message creates",
        effect="sends",
    )

    # Timer messages.
    timers: bool = option(
        "timerWheelEnable",
        True,
        help="take messages that are delivered at a time of their own, and deliver them",
        effect="start; sends",
    )
    timer_precision_ms: int = option(
        "timerPrecisionMs",
        1000,
        "ms",
        low=10,
        high=60_000,
        help="span of a slot of the timer wheel, whose messages are delivered together",
        effect="start; sends",
    )
    timer_delay_max_s: int = option(
        "timerMaxDelaySec",
        259_200,
        "s",
        low=1,
        help="longest time until a timer message is delivered",
        effect="sends and recalls",
    )
    timer_window_slots: int = option(
        "timerRollWindowSlot",
        172_800,
        low=2,
        high=604_800,
        help="slots of the timer wheel that messages wait in; those further away are entered again",
        effect="start",
    )
    timer_slot_messages_max: int = option(
        "timerCongestNumEachSlot",
        2**31 - 1,
        low=1,
        high=2**31 - 1,
        help="messages of one slot of the timer wheel, above which sends may be refused, and above "
        "twice the number are",
        effect="sends",
    )
    timer_file_size: int = option(
        "mappedFileSizeTimerLog",
        100 << 20,
        "bytes",
        low=4096,
        high=2**31 - 1,
        help="size of a file of the timer log, which is made again where its files have another",
        effect="start",
    )
    recalls: bool = option(
        "recallMessageEnable",
        False,
        help="remove waiting timer messages at the request of their producers",
        effect="recalls; answers of sends",
    )

    # Light queues.
    light_queues: bool = option(
        "enableLmq",
        False,
        help="have every topic and group whose name begins with %LMQ%, with offsets in "
        "lmqConsumerOffset.json; enableMultiDispatch puts messages in such topics",
        effect="start",
    )
    light_queues_max: int = option(
        "maxLmqConsumeQueueNum",
        20_000,
        "queues",
        help="largest number of light queues; messages that would make another one are refused",
        effect="sends, with enableMultiDispatch",
    )

    # Offsets.
    resets_at_broker: bool = option(
        "useServerSideResetOffset",
        True,
        help="reset the offsets of a group at the broker; false: send the offsets to the consumers "
        "that are online, which commit them",
        effect="resets of offsets",
    )

    # Replies.
    store_replies: bool = option(
        "storeReplyMessageEnable",
        True,
        help="store replies to requests in CLUSTER_REPLY_TOPIC, too",
        effect="replies",
    )

    # Transactions.
    rejects_transactions: bool = option(
        "rejectTransactionMessage",
        False,
        help="refuse half messages of transactional producers",
        effect="sends",
    )
    transaction_timeout_ms: int = option(
        "transactionTimeOut",
        6000,
        "ms",
        help="age of a half message from which on its producer is asked how the transaction ended",
        effect="transactions",
    )
    transaction_checks_max: int = option(
        "transactionCheckMax",
        15,
        "questions",
        low=1,
        help="questions to a producer after which its half message is given up",
        effect="transactions",
    )
    transaction_check_interval_ms: int = option(
        "transactionCheckInterval",
        30_000,
        "ms",
        low=10,
        help="time between two rounds of questions",
        effect="transactions",
    )
    transaction_note_bytes_max: int = option(
        "transactionOpMsgMaxSize",
        4096,
        "bytes",
        low=32,
        help="largest body of a record that notes ends of transactions",
        effect="transactions",
    )
    transaction_note_interval_ms: int = option(
        "transactionOpBatchInterval",
        3000,
        "ms",
        low=1,
        help="longest time from a commit to the record that notes it; a rollback is noted at once",
        effect="transactions",
    )

    # Requests in progress.
    sends_max: int = option(
        "sendThreadPoolQueueCapacity",
        10_000,
        "requests",
        low=1,
        help="sends that wait for disk or replicas at once; further ones are refused",
        effect="start",
    )
    pulls_max: int = option(
        "pullThreadPoolQueueCapacity",
        100_000,
        "requests",
        low=1,
        help="pulls that wait for the disk at once; further ones are refused",
        effect="start",
    )
    lite_pulls_max: int = option(
        "litePullThreadPoolQueueCapacity",
        100_000,
        "requests",
        low=1,
        help="the same of lite pull consumers",
        effect="start",
    )
    lookups_max: int = option(
        "queryThreadPoolQueueCapacity",
        20_000,
        "requests",
        low=1,
        help="lookups of messages that wait for the disk at once; further ones are refused",
        effect="start",
    )
    transaction_ends_max: int = option(
        "endTransactionPoolQueueCapacity",
        100_000,
        "requests",
        low=1,
        help="ends of transactions that wait for disk or replicas at once; further ones are "
        "refused",
        effect="start",
    )
    accepts_sends_from_ms: int = option(
        "startAcceptSendRequestTimeStamp",
        0,
        "ms",
        high=INT64_MAX,
        help="time, in ms since 1970, before which sends are refused",
        effect="sends",
    )

    # Reading.
    slave_reads: bool = option(
        "slaveReadEnable",
        False,
        help="answer pulls as a slave",
        effect="pulls",
    )
    long_polling: bool = option(
        "longPollingEnable",
        True,
        help="hold a pull without messages for the time that the pull names",
        effect="pulls",
    )
    short_polling_ms: int = option(
        "shortPollingTimeMills",
        1000,
        "ms",
        help="time for which a pull without messages is held, without longPollingEnable",
        effect="pulls",
    )
    stores_broadcast_offsets: bool = option(
        "enableBroadcastOffsetStore",
        True,
        help="keep what each consumer that broadcasts has pulled, and commit the lowest progress "
        "of a group as that of GROUP@broadcast",
        effect="pulls",
    )
    broadcast_offline_s: int = option(
        "broadcastOffsetExpireSecond",
        120,
        "s",
        help="time after the last pull of a consumer that broadcasts, and is not online, until its "
        "progress is forgotten",
        effect="start",
    )
    broadcast_online_s: int = option(
        "broadcastOffsetExpireMaxSecond",
        300,
        "s",
        help="the same for one that is online",
        effect="start",
    )

    # POP.
    revive_queue_count: int = option(
        "reviveQueueNum",
        8,
        "queues",
        low=1,
        high=998,
        help="queues of the topic with the check points and acknowledgements of popped messages",
        effect="start; pops",
    )
    pop_retries_percent: int = option(
        "popFromRetryProbability",
        20,
        "%",
        high=100,
        help="share of pops that look for messages to be consumed again before they look for new "
        "ones",
        effect="pops",
    )
    pop_retries_v2: bool = option(
        "enableRetryTopicV2",
        False,
        help="put messages that are popped again into %RETRY%GROUP+TOPIC instead of "
        "%RETRY%GROUP_TOPIC",
        effect="pops and deliveries",
    )
    pops_old_retries: bool = option(
        "retrieveMessageFromPopRetryTopicV1",
        True,
        help="with enableRetryTopicV2 also pop messages from %RETRY%GROUP_TOPIC",
        effect="pops",
    )
    clears_pop_retries: bool = option(
        "clearRetryTopicWhenDeleteTopic",
        True,
        help="delete the topics of messages that are popped again with the topic they came from",
        effect="deletions of topics",
    )
    pop_returns_retry_topic: bool = option(
        "popResponseReturnActualRetryTopic",
        False,
        help="name the retry topic in messages that are popped again, and not the topic that the "
        "consumer asked for",
        effect="pops",
    )
    pop_begins_at_zero: bool = option(
        "initPopOffsetByCheckMsgInMem",
        True,
        help="have a new group that begins at the end of a topic begin at the first message of a "
        "queue that is whole and recent, as groups that pull do",
        effect="pops",
    )
    waiting_pops_max: int = option(
        "maxPopPollingSize",
        100_000,
        "pops",
        help="pops that wait for messages at once; further ones are answered with POLLING_FULL",
        effect="start",
    )
    waiting_pops_max_each: int = option(
        "popPollingSize",
        1024,
        "pops",
        help="the same of one group for one queue, or for any queue, of one topic",
        effect="start",
    )

    # Filters.
    sql_filters: bool = option(
        "enablePropertyFilter",
        False,
        help="serve consumers that select messages by an expression of SQL92",
        effect="pulls, and checks of consumers",
    )
    sql_filters_of_retries: bool = option(
        "filterSupportRetry",
        False,
        help="select the messages of a retry topic that is subscribed to by SQL92 by the group's "
        "expression for the topic that each message came from",
        effect="pulls of retry topics",
    )
    filter_consumers: int = option(
        "expectConsumerNumUseFilter",
        32,
        "groups",
        low=1,
        high=1_000_000,
        help="groups with an expression for one topic that the bits in consumerFilter.json are for",
        effect="start; consumerFilter.json",
    )
    filter_error_percent: int = option(
        "maxErrorRateOfBloomFilter",
        20,
        "%",
        low=1,
        high=99,
        help="share of messages that the bits in consumerFilter.json may fail to exclude",
        effect="start; consumerFilter.json",
    )
    filter_kept_ms: int = option(
        "filterDataCleanTimeSpan",
        24 * 60 * 60 * 1000,
        "ms",
        help="time for which consumerFilter.json keeps the expression of a group without consumers",
        effect="consumerFilter.json",
    )

    # Assignment of queues.
    balances_load: bool = option(
        "serverLoadBalancerEnable",
        True,
        help="assign each consumer that asks its share of the queues; otherwise all of them",
        effect="assignments",
    )
    default_request_mode: ConsumptionMode = option(  # noqa: RUF009
        "defaultMessageRequestMode",
        ConsumptionMode.PULL,
        help="how a group that asks for assignments gets messages, where no operator has set a "
        "mode: PULL or POP",
        effect="assignments",
    )
    default_pop_share_queues: int = option(
        "defaultPopShareQueueNum",
        -1,
        "consumers",
        low=-1,
        help="consumers after it in the group whose queues a consumer that pops has too, where no "
        "operator has set a number; -1 for all queues",
        effect="assignments, with defaultMessageRequestMode POP",
    )
    route_age_ms: int = option(
        "loadBalancePollNameServerInterval",
        30_000,
        "ms",
        low=10,
        help="age of the brokers and queues of a topic from which on nameservers are asked again",
        effect="assignments",
    )

    # Locks of queues.
    strict_locks: bool = option(
        "lockInStrictMode",
        False,
        help="lock a queue for a consumer that reads in order only where a majority of "
        "totalReplicas brokers grants it",
        effect="start; locks",
    )

    # Metrics.
    metrics_exporter: MetricsExporter = same_option(  # noqa: RUF009
        ControllerConfig, "metrics_exporter"
    )
    metrics_host: str = same_option(ControllerConfig, "metrics_host")
    metrics_port: int = same_option(ControllerConfig, "metrics_port")

    # Configuration.
    config_store_path: str = option(
        "configStorePath",
        "",
        help="file of the settings that requests changed, written by them and read at the start; "
        "without it they change the file of -c",
        effect="start, and UPDATE_BROKER_CONFIG",
    )

    def __init__(
        self,
        *,
        store: StoreConfig | None = None,
        replica: ReplicaConfig | None = None,
        **settings: Any,
    ) -> None:
        """*settings* by field name, including fields of the store and the replica, which replace
        those of *store* and *replica*. Addresses may be pairs of host and port."""
        sources.check_names(settings, self.every_option())
        for name in _ADDRESSES & settings.keys():
            settings[name] = _texts_of(settings[name])
        for name in self.options():
            default = self.__dataclass_fields__[name].default
            object.__setattr__(self, name, settings.pop(name, default))

        violations: list[str] = []
        for name, kind, part in (
            ("store", StoreConfig, store or StoreConfig()),
            ("replica", ReplicaConfig, replica or ReplicaConfig()),
        ):
            arguments.instance(name, part, kind)
            of_part = {each: settings[each] for each in kind.options() if each in settings}
            try:
                object.__setattr__(self, name, replace(part, **of_part))
            except ConfigError as error:
                violations += error.violations
        violations = violations or violations_of(self) or _cross_violations(self)
        if violations:
            raise ConfigError(violations)

    @property
    def is_controlled(self) -> bool:
        """True where a controller assigns id and role."""
        return self.replica.controller_mode_enable

    @property
    def granted_ms(self) -> int:
        """The duration of a master's lease; 0 without a limit.

        The default is usually longer than the replacement of a leading controller takes; elections
        wait for the end of the lease.
        """
        if self.lease_ms >= 0:
            return self.lease_ms
        wanted_ms = max(_LEASE_MS, 3 * self.heartbeat_interval_ms)
        return min(wanted_ms, self.controller_heartbeat_timeout_ms * 7 // 10)

    @property
    def is_slave(self) -> bool:
        """True for a slave by brokerRole, which has an effect only without a controller."""
        return self.store.broker_role is BrokerRole.SLAVE and not self.is_controlled

    @classmethod
    def options(cls) -> Mapping[str, Option]:
        """Return the RocketMQ side of the broker's own fields, without those of the store and the
        replica, by field name."""
        return options_of(cls)

    @classmethod
    def every_option(cls) -> Mapping[str, Option]:
        """Return the RocketMQ side of every field, with those of the store and the replica."""
        others = {**StoreConfig.options(), **ReplicaConfig.options()}
        return {
            **{name: about for name, about in others.items() if name not in _HIDDEN_NAMES},
            **cls.options(),
        }

    @classmethod
    def from_properties(
        cls,
        path_or_text: str | os.PathLike[str],
        *,
        strict: bool = False,
        defaults: Mapping[str, Any] | None = None,
    ) -> BrokerConfig:
        """Return the settings of RocketMQ's broker.conf: a path, or text with a line break or `=`.

        Raises one ConfigError that lists every mistake. An unknown key is a mistake if it is one
        letter away from a known key, or with *strict*. One warning names the keys that have no
        effect on a broker. *defaults*, by field name, hold where the file has no value.
        """
        text, name = sources.source_of(path_or_text, encoding="iso-8859-1")
        options = cls.every_option()
        settings = sources.from_properties(text, options, strict=strict)
        settings.values = {**(defaults or {}), **settings.values}
        own = {each: settings.values[each] for each in settings.values if each in cls.options()}
        store, replica = StoreConfig(), ReplicaConfig()
        violations: list[str] = []
        try:
            store, replica = sources.build(settings, (StoreConfig, ReplicaConfig), source=name)
        except ConfigError as error:
            violations += error.violations
        try:
            config = cls(store=store, replica=replica, **own)
        except ConfigError as error:
            violations += error.violations
        if violations:
            raise ConfigError(violations, source=name)
        sources.warn(settings, name, used=options)
        return config

    def to_properties(self) -> str:
        """Return every setting as a broker.conf; from_properties reads the same value back."""
        return sources.to_properties(self.store, self.replica, self, without=_HIDDEN_NAMES)

    def replace(self, **changes: Any) -> BrokerConfig:
        """Return a copy with *changes* by field name, including fields of the store and the
        replica. Raises ConfigError for unknown names and bad values."""
        own = {each: getattr(self, each) for each in self.options()}
        return BrokerConfig(store=self.store, replica=self.replica, **own | changes)


_ADDRESSES = frozenset({"nameservers", "controllers", "ha_master_address"})
"""Fields for addresses of other servers."""
_OWN_KEYS = frozenset(about.key for about in options_of(BrokerConfig).values())
_HIDDEN_NAMES = frozenset(
    name for name, about in StoreConfig.options().items() if about.key in _OWN_KEYS
)
"""Fields of the store whose keys also fill fields of the broker; the broker's fields decide."""


def _texts_of(addresses: Any) -> Any:
    """Returns an address, or each of several, as text where it is a pair of host and port."""
    one = address_text(addresses)
    if isinstance(one, list | tuple):
        return tuple(map(address_text, one))
    return one


def _cross_violations(config: BrokerConfig) -> list[str]:
    violations: list[str] = []
    if config.is_slave and config.broker_id <= 0:
        violations.append(
            f"brokerId (broker_id): {config.broker_id} is not the id of a slave, but brokerRole is "
            "SLAVE; give an id above 0"
        )
    if config.is_controlled and not config.controllers:
        violations.append(
            "controllerAddr (controllers) is empty, but enableControllerMode is true; name the "
            "controllers, as in 10.0.0.1:9878;10.0.0.2:9878"
        )
    replica = config.replica
    needs_lease = replica.in_sync_replicas > 1 and not replica.all_ack_in_sync_state_set
    if config.is_controlled and config.granted_ms == 0 and needs_lease:
        violations.append(
            f"masterLeaseMillis (lease_ms) is 0, but puts wait for {replica.in_sync_replicas} "
            "copies (inSyncReplicas): without a lease a former master gets copies of slaves that "
            "have already reported for an election, and these messages are lost; leave the lease "
            "on, or set allAckInSyncStateSet=true"
        )
    return violations
