"""The settings of a replica: one frozen value with RocketMQ's names and defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rmqstore.config.addresses import ADDRESS, HOST
from rmqstore.config.options import INT64_MAX, Option, option, options_of, violations_of
from rmqstore.errors import ConfigError

__all__ = ["FRAME_BODY_BYTES_MAX", "ReplicaConfig", "quorum_violations"]

_MIB = 1024 * 1024
FRAME_BODY_BYTES_MAX = 4 * _MIB - 44
"""RocketMQ's slave never completes a frame that is larger than its buffer of 4 MiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaConfig:
    """The settings of a replica, for `Quorum`, `HaOptions` and the roles.

    Each field holds an `Option` in its metadata: RocketMQ key, unit, default, limits, help.
    Defaults are those of RocketMQ 5.3.3 and 5.5.0. The constructor raises one ConfigError that
    lists every violation.
    """

    # Mode.
    controller_mode_enable: bool = option(
        "enableControllerMode",
        False,
        help="count the members of a sync-state set (Mode.SYNC_STATE_SET)",
        effect="master: counted replicas; auto-switch protocol",
    )
    acting_master_enable: bool = option(
        "enableSlaveActingMaster",
        False,
        help="count the replicas that keep up (Mode.ACTING_MASTER)",
        effect="master: counted replicas, without enableControllerMode",
    )

    # Quorum.
    total_replicas: int = option(
        "totalReplicas",
        1,
        "replicas",
        low=1,
        help="size of the group, including the master; 1 if not known",
        effect="master: replicas alive, with enableSlaveActingMaster",
    )
    in_sync_replicas: int = option(
        "inSyncReplicas",
        1,
        "copies",
        low=1,
        help="copies that a put waits for, including the master's",
        effect="master: each put that waits for replicas",
    )
    min_in_sync_replicas: int = option(
        "minInSyncReplicas",
        1,
        "copies",
        low=1,
        help="lowest number of replicas in sync at which puts are accepted",
        effect="master, with enableControllerMode or enableSlaveActingMaster",
    )
    auto_in_sync_replicas: bool = option(
        "enableAutoInSyncReplicas",
        False,
        help="lower the copies needed to the number of replicas in sync",
        effect="master, with enableSlaveActingMaster",
    )
    all_ack_in_sync_state_set: bool = option(
        "allAckInSyncStateSet",
        False,
        help="require a copy on every member of the sync-state set",
        effect="master, with enableControllerMode or members",
    )
    slave_timeout_ms: int = option(
        "slaveTimeout",
        3000,
        "ms",
        low=1,
        help="longest wait of a put for its copies",
        effect="master: each put that waits for replicas",
    )
    ha_gap_bytes_max: int = option(
        "haMaxGapNotInSync",
        256 * _MIB,
        "bytes",
        low=1,
        high=INT64_MAX,
        help="lag at which a replica is no longer in sync",
        effect="master, without a sync-state set",
    )
    ha_lag_ms_max: int = option(
        "haMaxTimeSlaveNotCatchup",
        15_000,
        "ms",
        low=1,
        help="time after which a lagging member leaves the sync-state set",
        effect="master: proposals of a new set",
    )

    set_check_interval_ms: int = option(
        "checkSyncStateSetPeriod",
        5000,
        "ms",
        low=10,
        help="longest time between two checks which replicas keep up; values below 250 ms have an "
        "effect, because a master checks at least that often",
        effect="master: proposals of a new set",
    )
    epochs_path: str = option(
        "storePathEpochFile",
        "",
        help="file of the epochs; it has to be `epochFileCheckpoint` in the store's directory",
        effect="open: another path is refused for writing, with enableControllerMode",
    )

    # Connections.
    ha_host_address: str = option(
        "brokerIP2",
        "",
        codec=HOST,
        help="address that slaves connect to; brokerIP1 where it is empty",
        effect="master: `listen` if none is given",
    )
    ha_master_address: str = option(
        "haMasterAddress",
        "",
        codec=ADDRESS,
        help="host and port of the master",
        effect="slave: `master` if none is given",
    )
    ha_listen_port: int = option(
        "haListenPort",
        10912,
        high=65535,
        help="port that slaves connect to; 0 for any free port",
        effect="master and slave: `listen` without a port",
    )
    ha_send_heartbeat_interval_ms: int = option(
        "haSendHeartbeatInterval",
        5000,
        "ms",
        low=1,
        help="idle time after which either side sends a frame",
        effect="master and slave: each connection",
    )
    ha_housekeeping_interval_ms: int = option(
        "haHousekeepingInterval",
        20_000,
        "ms",
        low=1,
        help="time without a frame after which either side closes the connection",
        effect="master and slave: each connection",
    )
    ha_transfer_batch_bytes: int = option(
        "haTransferBatchSize",
        32_768,
        "bytes",
        low=1,
        high=FRAME_BODY_BYTES_MAX,
        help="largest body of a frame",
        effect="master: each connection",
    )
    ha_flow_control_enable: bool = option(
        "haFlowControlEnable",
        False,
        help="limit the rate of each connection",
        effect="master: each connection",
    )
    ha_transfer_bytes_per_second_max: int = option(
        "maxHaTransferByteInSecond",
        100 * _MIB,
        "bytes/s",
        low=1,
        high=INT64_MAX,
        help="rate of a connection to a slave",
        effect="master: each connection, with haFlowControlEnable",
    )

    # Slave.
    async_learner: bool = option(
        "asyncLearner",
        False,
        help="copy as a learner: the copy does not count for puts",
        effect="slave, auto-switch protocol",
    )
    sync_from_last_file: bool = option(
        "syncFromLastFile",
        False,
        help="begin an empty log at the master's last log file",
        effect="slave, auto-switch protocol; always in the classic protocol",
    )

    def __post_init__(self) -> None:
        # Rules between fields do not apply to values that are wrong by themselves.
        violations = violations_of(self) or quorum_violations(
            total=self.total_replicas,
            in_sync=self.in_sync_replicas,
            min_in_sync=self.min_in_sync_replicas,
            is_lowered=self.auto_in_sync_replicas,
        )
        if violations:
            raise ConfigError(violations)

    @classmethod
    def options(cls) -> Mapping[str, Option]:
        """Return the RocketMQ side of every field, by field name."""
        return options_of(cls)


def quorum_violations(*, total: int, in_sync: int, min_in_sync: int, is_lowered: bool) -> list[str]:
    """Return the contradictions between the numbers of a quorum."""
    violations: list[str] = []
    if is_lowered and min_in_sync > in_sync:
        violations.append(
            f"minInSyncReplicas: {min_in_sync} is above inSyncReplicas {in_sync}, which "
            "enableAutoInSyncReplicas lowers towards it; lower it"
        )
    if 1 < total < max(in_sync, min_in_sync):
        violations.append(
            f"totalReplicas: {total} replicas cannot make {max(in_sync, min_in_sync)} copies; "
            "raise it"
        )
    return violations
