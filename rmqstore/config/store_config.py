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
)
from rmqstore.config.properties import format_properties
from rmqstore.errors import ConfigError

__all__ = ["Compatibility", "StoreConfig"]

Compatibility = Literal["auto", "5.3", "5.5"]

_KIB = 1024
_MIB = 1024 * _KIB
_CONSUME_QUEUE_UNIT_BYTES = 20
_INDEX_HEADER_BYTES = 40
_INDEX_SLOT_BYTES = 4
_INDEX_ENTRY_BYTES = 20
_MAPPED_FILE_BYTES_MAX = 2**31 - 1
_IGNORED_POOL = (
    "accepted without effect: every append goes to the mapped file, nothing waits in a pool"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreConfig:
    """The settings of a store.

    Each field holds an `Option` in its metadata: RocketMQ key, unit, default, limits. Defaults are
    those of RocketMQ 5.3.3 and 5.5.0. The constructor raises one ConfigError that lists every
    violation.
    """

    compatibility: Compatibility = option("compatibility", "auto")  # noqa: RUF009
    """Which release's bytes a new store gets: "5.3" or "5.5" exactly, or "auto" for bytes that both
    accept. A store already there keeps its own."""

    # Places. The directory given to open() stands before root_path.
    root_path: str = option("storePathRootDir", "")
    commit_log_paths: tuple[str, ...] = option("storePathCommitLog", (), codec=PATHS)
    """Directories of commit log files, separated by ','; none: `commitlog` under the root."""
    commit_log_read_only_paths: tuple[str, ...] = option(
        "readOnlyCommitLogStorePaths", (), codec=PATHS
    )
    store_type: str = option("storeType", "default")

    # Identity, as records name it.
    store_host_address: str = option(
        "brokerIP1", "127.0.0.1", note="RocketMQ's default is an address of the machine"
    )
    store_host_port: int = option("listenPort", 10911, high=65535)
    broker_role: BrokerRole = option("brokerRole", BrokerRole.ASYNC_MASTER)  # noqa: RUF009
    enable_controller_mode: bool = option("enableControllerMode", False)
    duplication_enable: bool = option("duplicationEnable", False)

    # File sizes.
    commit_log_file_size_bytes: int = option(
        "mappedFileSizeCommitLog", 1024 * _MIB, "bytes", low=128
    )
    consume_queue_file_size_bytes: int = option(
        "mappedFileSizeConsumeQueue", 6_000_000, "bytes", low=20
    )
    consume_queue_ext_file_size_bytes: int = option(
        "mappedFileSizeConsumeQueueExt", 48 * _MIB, "bytes", low=64
    )
    batch_consume_queue_file_size_bytes: int = option(
        "mapperFileSizeBatchConsumeQueue", 13_800_000, "bytes", low=46
    )
    enable_consume_queue_ext: bool = option("enableConsumeQueueExt", False)
    consume_queue_ext_bit_map_bits: int = option("bitMapLengthConsumeQueueExt", 64, "bits")

    # Put.
    message_size_bytes_max: int = option("maxMessageSize", 4 * _MIB, "bytes", low=10)
    auto_message_version_on_topic_length: bool = option("autoMessageVersionOnTopicLen", True)
    put_message_timeout_ms: int = option("putMessageTimeout", 8000, "ms")
    page_cache_busy_timeout_ms: int = option(
        "osPageCacheBusyTimeOutMills", 1000, "ms", high=INT64_MAX
    )
    topic_queue_lock_count: int = option("topicQueueLockNum", 32, "locks", low=1)
    use_reentrant_lock_on_put: bool = option("useReentrantLockWhenPutMessage", True)
    use_adaptive_lock_on_put: bool = option("useABSLock", False)
    enable_lmq: bool = option("enableLmq", False)
    enable_multi_dispatch: bool = option("enableMultiDispatch", False)
    lmq_consume_queue_count_max: int = option("maxLmqConsumeQueueNum", 20_000, "queues")

    # CRC.
    check_crc_on_recover: bool = option("checkCRCOnRecover", True)
    append_property_crc: bool = option("enabledAppendPropCRC", False)
    force_verify_property_crc: bool = option("forceVerifyPropCRC", False)

    # Flush.
    flush_disk_type: FlushDiskType = option("flushDiskType", FlushDiskType.ASYNC_FLUSH)  # noqa: RUF009
    flush_commit_log_interval_ms: int = option("flushIntervalCommitLog", 500, "ms", low=1)
    flush_commit_log_timed: bool = option("flushCommitLogTimed", True)
    flush_commit_log_least_pages: int = option("flushCommitLogLeastPages", 4, "pages")
    flush_commit_log_thorough_interval_ms: int = option(
        "flushCommitLogThoroughInterval", 10_000, "ms"
    )
    commit_commit_log_interval_ms: int = option("commitIntervalCommitLog", 200, "ms", low=1)
    commit_commit_log_least_pages: int = option("commitCommitLogLeastPages", 4, "pages")
    commit_commit_log_thorough_interval_ms: int = option(
        "commitCommitLogThoroughInterval", 200, "ms"
    )
    flush_consume_queue_interval_ms: int = option("flushIntervalConsumeQueue", 1000, "ms", low=1)
    flush_consume_queue_least_pages: int = option("flushConsumeQueueLeastPages", 2, "pages")
    flush_consume_queue_thorough_interval_ms: int = option(
        "flushConsumeQueueThoroughInterval", 60_000, "ms"
    )
    sync_flush_timeout_ms: int = option("syncFlushTimeout", 5000, "ms")
    slave_timeout_ms: int = option("slaveTimeout", 3000, "ms")
    wake_flush_on_put: bool = option("wakeFlushWhenPutMessage", False)
    wake_commit_on_put: bool = option("wakeCommitWhenPutMessage", True)
    disk_fall_recorded: bool = option("diskFallRecorded", True)

    # Mapped files.
    warm_mapped_file_enable: bool = option("warmMapedFileEnable", False)
    warm_flush_least_pages: int = option("flushLeastPagesWhenWarmMapedFile", 4096, "pages", low=1)
    transient_store_pool_enable: bool = option(
        "transientStorePoolEnable", False, note=_IGNORED_POOL
    )
    transient_store_pool_count: int = option(
        "transientStorePoolSize", 5, "buffers", note=_IGNORED_POOL
    )
    fast_fail_if_no_buffer_in_pool: bool = option(
        "fastFailIfNoBufferInStorePool", False, note=_IGNORED_POOL
    )

    # Dispatch and recovery.
    read_uncommitted: bool = option("readUnCommitted", False)
    recheck_dispatch_offset_from_queues: bool = option("recheckReputOffsetFromCq", False)
    build_consume_queue_concurrently: bool = option("enableBuildConsumeQueueConcurrently", False)
    put_consume_queue_by_file_channel: bool = option("putConsumeQueueDataByFileChannel", True)
    recover_concurrently: bool = option("recoverConcurrently", False)
    recover_thread_count: int = option("recoverThreadPoolNums", 32, "threads", low=1)

    # Index.
    message_index_enable: bool = option("messageIndexEnable", True)
    message_index_safe: bool = option("messageIndexSafe", False)
    index_file_write_enable: bool = option("indexFileWriteEnable", True)
    index_file_read_enable: bool = option("indexFileReadEnable", True)
    index_slot_count: int = option("maxHashSlotNum", 5_000_000, "slots", low=1)
    index_entry_count: int = option("maxIndexNum", 20_000_000, "entries", low=2)
    index_query_count_max: int = option("maxMsgsNumBatch", 64, "messages", low=1)

    # Get.
    filter_scan_bytes_max: int = option("maxFilterMessageSize", 16_000, "bytes")
    """How many bytes of consume queue units one get looks at while filtering."""
    transfer_in_memory_bytes_max: int = option(
        "maxTransferBytesOnMessageInMemory", 256 * _KIB, "bytes"
    )
    transfer_in_memory_count_max: int = option("maxTransferCountOnMessageInMemory", 32, "messages")
    transfer_on_disk_bytes_max: int = option("maxTransferBytesOnMessageInDisk", 64 * _KIB, "bytes")
    transfer_on_disk_count_max: int = option("maxTransferCountOnMessageInDisk", 8, "messages")
    access_in_memory_percent_max: int = option("accessMessageInMemoryMaxRatio", 40, "%", high=100)
    access_in_memory_percent_hot: int = option("accessMessageInMemoryHotRatio", 26, "%", high=100)
    consume_queue_files_per_get: int = option("travelCqFileNumWhenGetMessage", 1, "files", low=1)
    search_batch_consume_queue_by_cache: bool = option("searchBcqByCacheEnable", True)
    offset_check_in_slave: bool = option("offsetCheckInSlave", False)

    # Retention. The percentages outside RocketMQ's allowed range are brought into it, as RocketMQ
    # does.
    delete_at_hours: tuple[int, ...] = option("deleteWhen", (4,), "hours of the day", codec=HOURS)
    file_reserved_hours: int = option("fileReservedTime", 72, "hours")
    delete_file_batch_max: int = option("deleteFileBatchMax", 10, "files", low=1)
    clean_file_forcibly_enable: bool = option("cleanFileForciblyEnable", True)
    clean_interval_ms: int = option("cleanResourceInterval", 10_000, "ms", low=1)
    delete_commit_log_files_interval_ms: int = option("deleteCommitLogFilesInterval", 100, "ms")
    delete_consume_queue_files_interval_ms: int = option(
        "deleteConsumeQueueFilesInterval", 100, "ms"
    )
    destroy_mapped_file_interval_ms: int = option("destroyMapedFileIntervalForcibly", 120_000, "ms")
    redelete_file_interval_ms: int = option("redeleteHangedFileInterval", 120_000, "ms")
    disk_used_percent_max: int = option("diskMaxUsedSpaceRatio", 75, "%", high=100)
    disk_warning_percent: int = option("diskSpaceWarningLevelRatio", 90, "%", high=100)
    disk_clean_forcibly_percent: int = option("diskSpaceCleanForciblyRatio", 85, "%", high=100)
    replicas_per_disk_partition: int = option("replicasPerDiskPartition", 1, "replicas", low=1)
    logical_disk_used_ratio_max: float = option(
        "logicalDiskSpaceCleanForciblyThreshold", 0.8, "of the replica's share", high=1
    )

    # Metadata.
    delay_levels_ms: tuple[int, ...] = option(
        "messageDelayLevel",
        parse_delay_levels("1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"),
        "ms",
        codec=DELAY_LEVELS,
    )
    flush_delay_offset_interval_ms: int = option(
        "flushDelayOffsetInterval", 10_000, "ms", low=1, high=INT64_MAX
    )
    flush_consumer_offset_interval_ms: int = option(
        "flushConsumerOffsetInterval", 5000, "ms", low=1
    )
    consumer_offset_version_step: int = option(
        "consumerOffsetUpdateVersionStep", 500, "updates", low=1, high=INT64_MAX
    )
    delay_offset_version_step: int = option(
        "delayOffsetUpdateVersionStep", 200, "updates", low=1, high=INT64_MAX
    )

    def __post_init__(self) -> None:
        violations = _violations(self)
        if violations:
            raise ConfigError(violations)

    @classmethod
    def options(cls) -> Mapping[str, Option]:
        """Return the RocketMQ side of every field, by field name."""
        return options_of(cls)

    @classmethod
    def from_properties(cls, path_or_text: str | os.PathLike[str]) -> StoreConfig:
        """Return the configuration a RocketMQ broker's own file describes.

        A str holding a line break or `=` is the text itself, anything else a file, read as
        ISO-8859-1 as Java does. Keys of other parts of RocketMQ are passed over. Raises ConfigError
        listing every mistake; an unknown key is answered with the nearest right one.
        """
        text, name = sources.source_of(path_or_text, encoding="iso-8859-1")
        return cls._from_settings(sources.from_properties(text, cls.options()), source=name)

    @classmethod
    def from_toml(cls, path_or_text: str | os.PathLike[str]) -> StoreConfig:
        """Return the configuration of a TOML document, with our field names or RocketMQ's keys.

        Keys may stand flat or in tables: `file_size_bytes` in `[commit_log]` is
        commit_log_file_size_bytes, and a table of any other name only groups. Raises ConfigError
        listing every mistake.
        """
        text, name = sources.source_of(path_or_text, encoding="utf-8")
        return cls._from_settings(sources.from_toml(text, cls.options()), source=name)

    @classmethod
    def from_env(
        cls, prefix: str = "RMQSTORE_", *, environ: Mapping[str, str] | None = None
    ) -> StoreConfig:
        """Return the configuration of environment variables, None for those of this process.

        A variable is *prefix* and a field name in capitals, or *prefix* and a RocketMQ key as it
        is: RMQSTORE_FILE_RESERVED_HOURS or RMQSTORE_fileReservedTime. Raises ConfigError listing
        every mistake.
        """
        environment = os.environ if environ is None else environ
        settings = sources.from_environment(environment, prefix, cls.options())
        return cls._from_settings(settings, source="the environment")

    @classmethod
    def _from_settings(cls, settings: sources.Settings, *, source: str) -> StoreConfig:
        try:
            config = cls(**settings.values)  # type: ignore[arg-type]
        except ConfigError as error:
            raise ConfigError((*settings.violations, *error.violations), source=source) from None
        if settings.violations:
            raise ConfigError(settings.violations, source=source)
        return config

    def to_properties(self) -> str:
        """Return every setting as a RocketMQ broker's file; from_properties reads the same value
        back."""
        pairs: dict[str, str] = {}
        for name, about in self.options().items():
            value = getattr(self, name)
            if value not in ("", ()) or value != about.default:
                pairs[about.key] = about.codec.format(value)
        return format_properties(pairs)

    def replace(self, **changes: Any) -> StoreConfig:
        """Return a copy with *changes* by field name. Raises ConfigError for unknown names and bad
        values."""
        options = self.options()
        unknown = [
            f"{name}: unknown field; {sources.nearest_key(name, list(options))}"
            for name in changes
            if name not in options
        ]
        if unknown:
            raise ConfigError(unknown)
        return dataclasses.replace(self, **changes)

    @property
    def consume_queue_file_whole_units_bytes(self) -> int:
        """The consume queue file size rounded up to whole units: the size files have on disk."""
        return -(-self.consume_queue_file_size_bytes // _CONSUME_QUEUE_UNIT_BYTES) * (
            _CONSUME_QUEUE_UNIT_BYTES
        )


def _violations(config: StoreConfig) -> list[str]:
    violations: list[str] = []
    for name, about in config.options().items():
        violation = _field_violation(getattr(config, name), about)
        if violation:
            violations.append(f"{about.key} ({name}): {violation}")
    # Rules between fields say nothing sensible about values that are wrong by themselves.
    return violations or _cross_violations(config)


def _field_violation(value: Any, about: Option) -> str:
    """Returns what is wrong with one value, "" when nothing is."""
    unit = f" {about.unit}" if about.unit else ""
    if not about.codec.accepts(value):
        return f"{shown(value)} has the wrong type; give a {type(about.default).__name__}"
    if about.low is not None and value < about.low:
        return f"{shown(value, typed=False)} is below the limit of {about.low}{unit}; raise it"
    if about.high is not None and value > about.high:
        return f"{shown(value, typed=False)} is above the limit of {about.high}{unit}; lower it"
    return ""


def _cross_violations(config: StoreConfig) -> list[str]:
    violations: list[str] = []

    if config.compatibility not in get_args(Compatibility):
        violations.append(
            f"compatibility: {config.compatibility!r} is no release; use auto, 5.3 or 5.5"
        )
    if config.store_type not in ("default", "defaultRocksDB"):
        violations.append(
            f"storeType (store_type): {config.store_type!r} is unknown; "
            "use default or defaultRocksDB"
        )
    if any(not 0 <= hour <= 23 for hour in config.delete_at_hours):
        violations.append(
            f"deleteWhen (delete_at_hours): {config.delete_at_hours} holds an hour outside 0..23; "
            "give hours of the day"
        )
    if not config.delay_levels_ms or any(ms <= 0 or ms % 1000 for ms in config.delay_levels_ms):
        violations.append(
            "messageDelayLevel (delay_levels_ms): it takes at least one level, each of "
            "whole seconds above 0"
        )
    writable = set(config.commit_log_paths) - set(config.commit_log_read_only_paths)
    if config.commit_log_paths and not writable:
        violations.append(
            "storePathCommitLog (commit_log_paths): every path is also in "
            "readOnlyCommitLogStorePaths; leave one writable"
        )
    index_bytes = (
        _INDEX_HEADER_BYTES
        + _INDEX_SLOT_BYTES * config.index_slot_count
        + _INDEX_ENTRY_BYTES * config.index_entry_count
    )
    if index_bytes > _MAPPED_FILE_BYTES_MAX:
        violations.append(
            f"maxHashSlotNum, maxIndexNum: together they make index files of {index_bytes} bytes, "
            f"the limit is {_MAPPED_FILE_BYTES_MAX}; lower one"
        )
    if config.force_verify_property_crc and not config.append_property_crc:
        violations.append(
            "forceVerifyPropCRC (force_verify_property_crc): recovery would cut off every record "
            "put without enabledAppendPropCRC; switch that on too, or this off"
        )
    return violations
