"""The settings of a store: one frozen value, checked as a whole, with RocketMQ's names and
defaults."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from rmqstore.arguments import shown
from rmqstore.config import sources
from rmqstore.config.addresses import HOST
from rmqstore.config.options import (
    DELAY_LEVELS,
    HOURS,
    INT64_MAX,
    PATHS,
    BrokerRole,
    FlushDiskType,
    Option,
    option,
    options_of,
    parse_delay_levels,
    violations_of,
)
from rmqstore.config.replica_config import ReplicaConfig
from rmqstore.errors import ConfigError
from rmqstore.index_layout import entry_at
from rmqstore.queue_units import BATCH_UNIT_BYTES, UNIT_BYTES

__all__ = ["Compatibility", "StoreConfig"]

Compatibility = Literal["auto", "5.3", "5.5"]

_KIB = 1024
_MIB = 1024 * _KIB
_MAPPED_FILE_BYTES_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreConfig:
    """The settings of a store.

    Each field holds an `Option` in its metadata: RocketMQ key, unit, default, limits, help.
    Defaults are those of RocketMQ 5.3.3 and 5.5.0. The constructor raises one ConfigError that
    lists every violation.
    """

    compatibility: Compatibility = option(  # noqa: RUF009
        "compatibility",
        "auto",
        help="release whose bytes a new store gets: 5.3, 5.5, or auto for bytes that both accept",
        effect="new store; an existing store keeps its own",
    )

    # Directories.
    root_path: str = option(
        "storePathRootDir",
        "",
        help="directory of the store",
        effect="open, if the call names no path",
    )
    commit_log_paths: tuple[str, ...] = option(
        "storePathCommitLog",
        (),
        codec=PATHS,
        help="directories of the commit log, separated by commas; if empty, `commitlog` under "
        "the root",
        effect="open",
    )
    commit_log_read_only_paths: tuple[str, ...] = option(
        "readOnlyCommitLogStorePaths",
        (),
        codec=PATHS,
        help="directories of the commit log in which no file is created",
        effect="open",
    )
    store_type: str = option(
        "storeType",
        "default",
        help="kind of the consume queues: default for files, or defaultRocksDB",
        effect="open: queues in RocksDB are refused for writing",
    )
    dledger_commit_log_enable: bool = option(
        "enableDLegerCommitLog",
        False,
        help="keep the commit log in DLedger",
        effect="open: true is refused for writing",
    )

    # Identity in records.
    store_host_address: str = option(
        "brokerIP1",
        "127.0.0.1",
        codec=HOST,
        help="address or host's name of this store in its records; RocketMQ's default is one of "
        "the machine",
        effect="put; `listen` of a master if none is given",
    )
    store_host_port: int = option(
        "listenPort",
        10911,
        high=65535,
        help="port of this store in its records",
        effect="put",
    )
    broker_role: BrokerRole = option(  # noqa: RUF009
        "brokerRole",
        BrokerRole.ASYNC_MASTER,
        help="ASYNC_MASTER, or SYNC_MASTER for puts that wait for inSyncReplicas copies, or SLAVE "
        "for a store that takes no puts before it becomes master",
        effect="put that names no durability",
    )

    # File sizes.
    commit_log_file_size_bytes: int = option(
        "mappedFileSizeCommitLog",
        1024 * _MIB,
        "bytes",
        low=128,
        help="size of a commit log file",
        effect="new files",
    )
    consume_queue_file_size_bytes: int = option(
        "mappedFileSizeConsumeQueue",
        6_000_000,
        "bytes",
        low=20,
        help="size of a consume queue file, rounded up to whole units of 20 bytes",
        effect="new files",
    )
    consume_queue_ext_file_size_bytes: int = option(
        "mappedFileSizeConsumeQueueExt",
        48 * _MIB,
        "bytes",
        low=64,
        help="size of a file of extension units",
        effect="new files",
    )
    batch_consume_queue_file_size_bytes: int = option(
        "mapperFileSizeBatchConsumeQueue",
        13_800_000,
        "bytes",
        low=BATCH_UNIT_BYTES,
        help="size of a batch consume queue file, a multiple of 46",
        effect="new files",
    )
    enable_consume_queue_ext: bool = option(
        "enableConsumeQueueExt",
        False,
        help="write an extension unit for each message",
        effect="dispatch",
    )

    # Put.
    message_size_bytes_max: int = option(
        "maxMessageSize",
        4 * _MIB,
        "bytes",
        low=10,
        help="largest body",
        effect="put",
    )
    auto_message_version_on_topic_length: bool = option(
        "autoMessageVersionOnTopicLen",
        True,
        help="records of version 2 for topics longer than 127 bytes",
        effect="put",
    )
    page_cache_busy_timeout_ms: int = option(
        "osPageCacheBusyTimeOutMills",
        1000,
        "ms",
        high=INT64_MAX,
        help="time that another put may hold the log's lock before puts are refused; 0: no limit",
        effect="put",
    )
    enable_multi_dispatch: bool = option(
        "enableMultiDispatch",
        False,
        help="light queues: messages in the queues that property INNER_MULTI_DISPATCH names",
        effect="put and dispatch",
    )

    # CRC.
    check_crc_on_recover: bool = option(
        "checkCRCOnRecover",
        True,
        help="compare the CRC of bodies when a store that was not closed is opened",
        effect="open",
    )
    append_property_crc: bool = option(
        "enabledAppendPropCRC",
        False,
        help="store a CRC of the whole record in its properties",
        effect="put",
    )
    force_verify_property_crc: bool = option(
        "forceVerifyPropCRC",
        False,
        help="treat a record without that CRC as damaged",
        effect="open",
    )

    # Flush.
    flush_disk_type: FlushDiskType = option(  # noqa: RUF009
        "flushDiskType",
        FlushDiskType.ASYNC_FLUSH,
        help="SYNC_FLUSH: puts wait for the disk, and replicas acknowledge only what is on it",
        effect="put that names no durability; flush; acknowledgements of a replica",
    )
    flush_commit_log_interval_ms: int = option(
        "flushIntervalCommitLog",
        500,
        "ms",
        low=1,
        help="time between two checks whether a flush of the log is due",
        effect="flush",
    )
    flush_commit_log_least_pages: int = option(
        "flushCommitLogLeastPages",
        4,
        "pages",
        help="unflushed pages of the log that make a flush due",
        effect="flush",
    )
    flush_commit_log_thorough_interval_ms: int = option(
        "flushCommitLogThoroughInterval",
        10_000,
        "ms",
        help="time after which a flush of the log is due for any unflushed byte",
        effect="flush",
    )
    flush_consume_queue_interval_ms: int = option(
        "flushIntervalConsumeQueue",
        1000,
        "ms",
        low=1,
        help="time between two checks whether a flush of the queues is due",
        effect="flush",
    )
    flush_consume_queue_least_pages: int = option(
        "flushConsumeQueueLeastPages",
        2,
        "pages",
        help="unflushed pages of a queue that make a flush due",
        effect="flush",
    )
    flush_consume_queue_thorough_interval_ms: int = option(
        "flushConsumeQueueThoroughInterval",
        60_000,
        "ms",
        help="time after which a flush of the queues is due for any unflushed byte",
        effect="flush",
    )
    sync_flush_timeout_ms: int = option(
        "syncFlushTimeout",
        5000,
        "ms",
        help="longest wait of a put for the disk",
        effect="put",
    )

    # Mapped files.
    warm_mapped_file_enable: bool = option(
        "warmMapedFileEnable",
        False,
        help="touch every page of a new log file before it is needed",
        effect="new files",
    )

    # Index.
    message_index_enable: bool = option(
        "messageIndexEnable",
        True,
        help="keep an index of keys",
        effect="dispatch and find",
    )
    index_file_write_enable: bool = option(
        "indexFileWriteEnable",
        True,
        help="write the index to index files; otherwise a store open for writing has no index",
        effect="dispatch",
    )
    index_file_read_enable: bool = option(
        "indexFileReadEnable",
        True,
        help="read the index from index files",
        effect="find",
    )
    index_slot_count: int = option(
        "maxHashSlotNum",
        5_000_000,
        "slots",
        low=1,
        help="slots of an index file",
        effect="new files",
    )
    index_entry_count: int = option(
        "maxIndexNum",
        20_000_000,
        "entries",
        low=2,
        help="entries of an index file",
        effect="new files",
    )
    index_query_count_max: int = option(
        "maxMsgsNumBatch",
        64,
        "messages",
        low=1,
        help="messages that a look-up by key returns",
        effect="find without max_count",
    )

    # Retention. Percentages outside RocketMQ's allowed range are moved into the range, as in
    # RocketMQ.
    delete_at_hours: tuple[int, ...] = option(
        "deleteWhen",
        (4,),
        "hours of the day",
        codec=HOURS,
        help="hours at which expired files are deleted, separated by semicolons",
        effect="retention",
    )
    file_reserved_hours: int = option(
        "fileReservedTime",
        72,
        "hours",
        help="time that a commit log file is kept",
        effect="retention",
    )
    delete_file_batch_max: int = option(
        "deleteFileBatchMax",
        10,
        "files",
        low=1,
        help="largest number of files that a round deletes",
        effect="retention",
    )
    clean_file_forcibly_enable: bool = option(
        "cleanFileForciblyEnable",
        True,
        help="also delete younger files when the disk is too full",
        effect="retention",
    )
    clean_interval_ms: int = option(
        "cleanResourceInterval",
        10_000,
        "ms",
        low=1,
        help="time between two rounds",
        effect="retention; refusal of puts on a full disk",
    )
    disk_used_percent_max: int = option(
        "diskMaxUsedSpaceRatio",
        75,
        "%",
        high=100,
        help="use of the disk above which expired files are deleted at any hour",
        effect="retention",
    )
    disk_warning_percent: int = option(
        "diskSpaceWarningLevelRatio",
        90,
        "%",
        high=100,
        help="use of the disk above which puts are refused",
        effect="put",
    )
    disk_clean_forcibly_percent: int = option(
        "diskSpaceCleanForciblyRatio",
        85,
        "%",
        high=100,
        help="use of the disk above which younger files are also deleted, and below which "
        "refused puts are accepted again",
        effect="retention; put",
    )
    replicas_per_disk_partition: int = option(
        "replicasPerDiskPartition",
        1,
        "replicas",
        low=1,
        help="stores that share the disk",
        effect="retention",
    )
    logical_disk_used_ratio_max: float = option(
        "logicalDiskSpaceCleanForciblyThreshold",
        0.8,
        "of the store's share of the disk",
        high=1,
        help="use of this share by the commit log above which younger files are also deleted",
        effect="retention, with replicasPerDiskPartition above 1",
    )

    # Delayed messages.
    delay_levels_ms: tuple[int, ...] = option(
        "messageDelayLevel",
        parse_delay_levels("1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"),
        "ms",
        codec=DELAY_LEVELS,
        help="delay of each level, in a file with the units s, m, h or d",
        effect="put",
    )

    def __post_init__(self) -> None:
        # Rules between fields do not apply to values that are wrong by themselves.
        violations = violations_of(self) or _cross_violations(self)
        if violations:
            raise ConfigError(violations)

    @classmethod
    def options(cls) -> Mapping[str, Option]:
        """Return the RocketMQ side of every field, by field name."""
        return options_of(cls)

    @classmethod
    def from_properties(
        cls, path_or_text: str | os.PathLike[str], *, strict: bool = False
    ) -> StoreConfig:
        """Return the store's part of a RocketMQ broker's own file; `Configuration.from_properties`
        returns all parts.

        A str with a line break or `=` is the text itself, anything else a file, read as ISO-8859-1
        as Java does. Raises ConfigError that lists every mistake. An unknown key is a mistake if it
        is one letter away from a known key, or with *strict*. One warning names the keys without
        effect.
        """
        text, name = sources.source_of(path_or_text, encoding="iso-8859-1")
        return cls._of(sources.from_properties(text, _OPTIONS, strict=strict), source=name)

    @classmethod
    def from_toml(cls, path_or_text: str | os.PathLike[str]) -> StoreConfig:
        """Return the store's part of a TOML document, with our field names or RocketMQ's keys.

        Keys may be flat or in tables: `file_size_bytes` in `[commit_log]` is
        commit_log_file_size_bytes; a table of any other name only groups. Raises and warns as
        from_properties.
        """
        text, name = sources.source_of(path_or_text, encoding="utf-8-sig")
        return cls._of(sources.from_toml(text, _OPTIONS), source=name)

    @classmethod
    def from_env(
        cls, prefix: str = "RMQSTORE_", *, environ: Mapping[str, str] | None = None
    ) -> StoreConfig:
        """Return the store's part of environment variables, None for those of this process.

        A variable's name is *prefix* and a field name in capitals, or *prefix* and an unchanged
        RocketMQ key: RMQSTORE_FILE_RESERVED_HOURS or RMQSTORE_fileReservedTime. Raises and warns
        as from_properties.
        """
        environment = os.environ if environ is None else environ
        settings = sources.from_environment(environment, prefix, _OPTIONS)
        return cls._of(settings, source="the environment")

    @classmethod
    def _of(cls, settings: sources.Settings, *, source: str) -> StoreConfig:
        store, _ = sources.build(settings, (cls, ReplicaConfig), source=source)
        sources.warn(settings, source, used=cls.options())
        assert isinstance(store, cls)
        return store

    def to_properties(self) -> str:
        """Return every setting as a RocketMQ broker's file; from_properties reads the same value
        back."""
        return sources.to_properties(self)

    def replace(self, **changes: Any) -> StoreConfig:
        """Return a copy with *changes* by field name. Raises ConfigError for unknown names and bad
        values."""
        sources.check_names(changes, self.options())
        return dataclasses.replace(self, **changes)

    @property
    def consume_queue_file_whole_units_bytes(self) -> int:
        """The consume queue file size rounded up to whole units: the size files have on disk."""
        return -(-self.consume_queue_file_size_bytes // UNIT_BYTES) * UNIT_BYTES


def _cross_violations(config: StoreConfig) -> list[str]:
    violations: list[str] = []

    def wrong(name: str, advice: str) -> None:
        found = shown(getattr(config, name), typed=False)
        violations.append(f"{config.options()[name].key} ({name}): {found} {advice}")

    if config.compatibility not in get_args(Compatibility):
        wrong("compatibility", "is not a release; use auto, 5.3 or 5.5")
    if config.store_type not in ("default", "defaultRocksDB"):
        wrong("store_type", "is not a store type; use default or defaultRocksDB")
    if any(not 0 <= hour <= 23 for hour in config.delete_at_hours):
        wrong("delete_at_hours", "has an hour outside 0..23; give hours of the day")
    if not config.delay_levels_ms or any(ms <= 0 or ms % 1000 for ms in config.delay_levels_ms):
        wrong("delay_levels_ms", "is wrong; give at least one level, each of whole seconds above 0")
    units, rest = divmod(config.batch_consume_queue_file_size_bytes, BATCH_UNIT_BYTES)
    if rest:
        wrong(
            "batch_consume_queue_file_size_bytes",
            f"bytes are not whole units of {BATCH_UNIT_BYTES} bytes; use "
            f"{units * BATCH_UNIT_BYTES or BATCH_UNIT_BYTES}",
        )
    writable = set(config.commit_log_paths) - set(config.commit_log_read_only_paths)
    if config.commit_log_paths and not writable:
        violations.append(
            "storePathCommitLog (commit_log_paths): every path is also in "
            "readOnlyCommitLogStorePaths; leave one writable"
        )
    index_bytes = entry_at(config.index_entry_count, slot_count=config.index_slot_count)
    if index_bytes > _MAPPED_FILE_BYTES_MAX:
        violations.append(
            f"maxHashSlotNum, maxIndexNum: together they make index files of {index_bytes} bytes, "
            f"the limit is {_MAPPED_FILE_BYTES_MAX}; lower one"
        )
    if config.force_verify_property_crc and not config.append_property_crc:
        violations.append(
            "forceVerifyPropCRC (force_verify_property_crc): recovery would cut off every record "
            "put without enabledAppendPropCRC; set both to true, or this key to false"
        )
    return violations


_OPTIONS = {**StoreConfig.options(), **ReplicaConfig.options()}
