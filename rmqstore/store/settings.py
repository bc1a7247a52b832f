"""From a configuration and the content of a directory to the settings of the native half.

A new store keeps the settings that shape its files in config/rmqstore.properties, as RocketMQ
itself does not save them; the files of an existing store show them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rmqstore import arguments
from rmqstore.config import BrokerRole, Configuration, FlushDiskType, ReplicaConfig, StoreConfig
from rmqstore.errors import ArgumentError, ConfigError, CorruptionError, disk_errors
from rmqstore.message import Durability
from rmqstore.net.addresses import numeric_host
from rmqstore.queue_units import BATCH_UNIT_BYTES
from rmqstore.regular_file import read_regular
from rmqstore.store.directory import Directory
from rmqstore.store.durable_files import replace_durably, sync_directory

__all__ = [
    "ConfigLike",
    "adapt",
    "configure",
    "is_remembered",
    "native_settings",
    "remember",
    "remembered",
    "resolve",
]

ConfigLike = Configuration | StoreConfig | str | os.PathLike[str]
"""What `rmqstore.open` takes as a configuration; text is the path of a broker's file."""

_SETTINGS_FILE = "rmqstore.properties"
_RECORD_OVERHEAD_BYTES = 64 * 1024
_LOOPBACK = "127.0.0.1"

# What a later opening must know to read the files, by RocketMQ key.
_REMEMBERED = (
    "compatibility",
    "mappedFileSizeCommitLog",
    "mappedFileSizeConsumeQueue",
    "mapperFileSizeBatchConsumeQueue",
    "mappedFileSizeConsumeQueueExt",
    "enableConsumeQueueExt",
    "maxHashSlotNum",
    "maxIndexNum",
    "enabledAppendPropCRC",
    "enableMultiDispatch",
)


def _path(root: str | os.PathLike[str]) -> Path:
    return Path(root, "config", _SETTINGS_FILE)


@disk_errors("looking at the store's settings")
def is_remembered(root: str | os.PathLike[str]) -> bool:
    """Return whether the store at *root* has its settings beside it."""
    return _path(root).exists()


@disk_errors("writing the store's settings")
def remember(root: str | os.PathLike[str], config: StoreConfig) -> None:
    """Write the settings that shape the files of a new store at *root*, durably."""
    lines = [line for line in config.to_properties().splitlines() if line.startswith(_REMEMBERED)]
    path = _path(root)
    if not path.parent.is_dir():
        path.parent.mkdir()
        sync_directory(path.parent.parent)
    replace_durably(path, ("\n".join(lines) + "\n").encode("iso-8859-1"))


@disk_errors("reading the store's settings")
def remembered(root: str | os.PathLike[str]) -> StoreConfig:
    """Return the configuration kept with the store at *root*, or the default one.

    Raises CorruptionError for a file that is not as it was written.
    """
    if not is_remembered(root):
        return StoreConfig()
    path = _path(root)
    is_whole = read_regular(path).endswith(b"\n")
    try:
        found = StoreConfig.from_properties(path, strict=True)
    except ConfigError as error:
        raise _damaged(path, "; ".join(error.violations)) from error
    if not is_whole:
        raise _damaged(path, "the last line has no end")
    return found


def _damaged(path: Path, what: str) -> CorruptionError:
    return CorruptionError(
        f"{path}: {what}; restore the file from a copy, or move it away and give compatibility, "
        "enabledAppendPropCRC and enableMultiDispatch as they were (config=, or --config FILE); "
        "the store's files show the sizes, but those of an index without keys",
        path=str(path),
        kind="settings",
    )


def resolve(
    path: str | os.PathLike[str] | None,
    config: ConfigLike | None,
    changes: Mapping[str, Any],
) -> tuple[str, Configuration]:
    """Return the directory of a store and its configuration, for the arguments of
    `rmqstore.open`.

    Without a *config* it is the one kept with the store. Raises ArgumentError where neither *path*
    nor storePathRootDir names a directory, ConfigError.
    """
    root = None if path is None else arguments.absolute_path("path", path)

    if isinstance(config, StoreConfig):
        found = Configuration(store=config)
    elif isinstance(config, Configuration):
        found = config
    elif config is not None:
        found = Configuration.from_properties(arguments.path("config", config))
    else:
        found = Configuration(store=StoreConfig() if root is None else remembered(root))

    found = found.replace(**changes)
    if root is not None:
        return root, found
    if not found.store.root_path:
        raise ArgumentError(
            "path is None, and storePathRootDir is not set; give the directory of the store"
        )
    return arguments.absolute_path("storePathRootDir", found.store.root_path), found


def configure(
    path: str | os.PathLike[str] | None,
    config: ConfigLike | None,
    changes: Mapping[str, Any],
    *,
    read_only: bool,
) -> tuple[str, Configuration, Directory]:
    """Return the directory of a store, its configuration and what the directory holds, for the
    arguments of `rmqstore.open`.

    Raises as `resolve`, NotFoundError where a read-only store is not there, UnsupportedStoreError.
    """
    root, found = resolve(path, config, changes)
    facts = Directory.inspect(root, commit_log_paths=found.store.commit_log_paths)
    if read_only:
        facts.require_store()
    else:
        paths = found.store.commit_log_paths
        named = changes.get("commit_log_paths", ()) if config is None else paths
        facts.require_writable_parts(
            found.store.store_type, is_dledger_enabled=found.store.dledger_commit_log_enable
        )
        facts.require_inside(paths, named=named)
        if found.replica.controller_mode_enable and found.replica.epochs_path:
            facts.require_epochs_at(found.replica.epochs_path)
    if config is None:
        found = replace(found, store=adapt(found.store, facts, changes))
    return root, found, facts


def adapt(config: StoreConfig, facts: Directory, named: Iterable[str]) -> StoreConfig:
    """Return *config* with the settings that the files of a store show, except *named* fields."""
    batch_size = facts.batch_consume_queue_file_size
    if batch_size is not None and batch_size % BATCH_UNIT_BYTES:
        batch_size = None  # of a truncated file
    found = {
        "commit_log_file_size_bytes": facts.commit_log_file_size,
        "consume_queue_file_size_bytes": facts.consume_queue_file_size,
        "batch_consume_queue_file_size_bytes": batch_size,
        "consume_queue_ext_file_size_bytes": facts.ext_file_size,
        "enable_consume_queue_ext": True if facts.ext_file_size else None,
        "index_slot_count": facts.index_slot_count,
        "index_entry_count": facts.index_entry_count,
    }
    options = config.options()
    return config.replace(
        **{
            name: value
            for name, value in found.items()
            # A truncated file does not show its former size; opening names it.
            if value and value >= (options[name].low or 1) and name not in set(named)
        }
    )


def native_settings(
    config: StoreConfig,
    facts: Directory,
    *,
    read_only: bool,
    keep_confirm_offset: bool = False,
    replica: ReplicaConfig | None = None,
) -> dict[str, Any]:
    """Return what the native half is opened with, by the names of `fill_options` (core.pyx)."""
    compatibility = {"auto": "both"}.get(config.compatibility, config.compatibility)
    release = facts.release if config.compatibility == "auto" else config.compatibility
    sync = config.flush_disk_type is FlushDiskType.SYNC_FLUSH
    writable = [
        path for path in config.commit_log_paths if path not in config.commit_log_read_only_paths
    ]

    return {
        "log_directories": sorted(writable),
        "read_only_log_directories": sorted(config.commit_log_read_only_paths),
        "read_only": read_only,
        "allow_gaps": read_only,
        "keep_confirm_offset": keep_confirm_offset,
        "index_enable": config.message_index_enable
        and (read_only or config.index_file_write_enable),
        "index_tags": release == "5.5",
        "need_property_crc": config.force_verify_property_crc,
        "check_crc_on_recover": config.check_crc_on_recover,
        "log_file_size": config.commit_log_file_size_bytes,
        "queue_file_size": config.consume_queue_file_whole_units_bytes,
        "batch_queue_file_size": config.batch_consume_queue_file_size_bytes,
        "ext_file_size": config.consume_queue_ext_file_size_bytes,
        "enable_ext": config.enable_consume_queue_ext,
        "index_slot_count": config.index_slot_count,
        "index_entry_count": config.index_entry_count,
        "body_size_max": config.message_size_bytes_max,
        "record_size_max": config.message_size_bytes_max + _RECORD_OVERHEAD_BYTES,
        "version_by_topic_size": config.auto_message_version_on_topic_length,
        "append_property_crc": config.append_property_crc,
        "multi_dispatch": config.enable_multi_dispatch,
        "warm_whole_file": config.warm_mapped_file_enable,
        "sync_ahead": sync,
        "page_cache_busy_ms": config.page_cache_busy_timeout_ms,
        "limit_to_flushed": sync,
        "delay_levels_ms": config.delay_levels_ms,
        "flush_interval_ms": config.flush_commit_log_interval_ms,
        "flush_thorough_ms": config.flush_commit_log_thorough_interval_ms,
        "flush_least_pages": config.flush_commit_log_least_pages,
        "flush_queue_interval_ms": config.flush_consume_queue_interval_ms,
        "flush_queue_thorough_ms": config.flush_consume_queue_thorough_interval_ms,
        "flush_queue_least_pages": config.flush_consume_queue_least_pages,
        "compatibility": compatibility,
        "durability": _default_durability(config, replica or ReplicaConfig()),
        "flushes_each_put": sync,
        "flush_timeout_ms": config.sync_flush_timeout_ms,
        "store_host": (_store_host(config, read_only=read_only), config.store_host_port),
    }


def _store_host(config: StoreConfig, *, read_only: bool) -> str:
    """Returns the numeric address in records that are put."""
    host = config.store_host_address or _LOOPBACK
    try:
        return numeric_host(host)
    except OSError as error:
        if read_only:
            return _LOOPBACK
        raise ConfigError(
            [
                f"brokerIP1 (store_host_address): {host} has no address: {error.strerror}; give "
                "an address, or a name that this machine can look up"
            ]
        ) from error


def _default_durability(config: StoreConfig, replica: ReplicaConfig) -> Durability:
    needs_copies = replica.in_sync_replicas > 1 or replica.all_ack_in_sync_state_set
    if config.broker_role is BrokerRole.SYNC_MASTER and needs_copies:
        return Durability.REPLICATED
    is_sync = config.flush_disk_type is FlushDiskType.SYNC_FLUSH
    return Durability.DISK if is_sync else Durability.MEMORY
