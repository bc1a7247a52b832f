"""The configuration: defaults, sources, checks (spec/store.md 27, spec/changes-5.5.md 10)."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqstore.config import (
    BrokerConfig,
    BrokerRole,
    Configuration,
    ControllerConfig,
    FlushDiskType,
    NameserverConfig,
    ReplicaConfig,
    StoreConfig,
    TlsConfig,
    format_delay_levels,
    format_properties,
    parse_delay_levels,
    parse_properties,
)
from rmqstore.config.known_keys import KEYS_WITHOUT_EFFECT
from rmqstore.errors import ArgumentTypeError, ConfigError

# Name, default as a broker's file has it: the table of spec/store.md 27, and 5.5's additions.
DEFAULTS = """
mappedFileSizeCommitLog 1073741824|mappedFileSizeConsumeQueue 6000000
mappedFileSizeConsumeQueueExt 50331648|mapperFileSizeBatchConsumeQueue 13800000
enableConsumeQueueExt false|flushDiskType ASYNC_FLUSH|brokerRole ASYNC_MASTER
flushIntervalCommitLog 500|flushCommitLogLeastPages 4|flushCommitLogThoroughInterval 10000
flushIntervalConsumeQueue 1000|flushConsumeQueueLeastPages 2
flushConsumeQueueThoroughInterval 60000|syncFlushTimeout 5000|maxMessageSize 4194304
autoMessageVersionOnTopicLen true|checkCRCOnRecover true|enabledAppendPropCRC false
forceVerifyPropCRC false|messageIndexEnable true|maxHashSlotNum 5000000|maxIndexNum 20000000
maxMsgsNumBatch 64|cleanResourceInterval 10000|deleteWhen 04|fileReservedTime 72
deleteFileBatchMax 10|diskMaxUsedSpaceRatio 75|diskSpaceWarningLevelRatio 90
diskSpaceCleanForciblyRatio 85|cleanFileForciblyEnable true|warmMapedFileEnable false
messageDelayLevel 1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h
osPageCacheBusyTimeOutMills 1000|enableMultiDispatch false|storeType default
replicasPerDiskPartition 1|logicalDiskSpaceCleanForciblyThreshold 0.8|indexFileWriteEnable true
indexFileReadEnable true|totalReplicas 1|inSyncReplicas 1|minInSyncReplicas 1
allAckInSyncStateSet false|enableAutoInSyncReplicas false|enableControllerMode false
enableSlaveActingMaster false|slaveTimeout 3000|haListenPort 10912|haSendHeartbeatInterval 5000
haHousekeepingInterval 20000|haTransferBatchSize 32768|haMaxGapNotInSync 268435456
haMaxTimeSlaveNotCatchup 15000|haFlowControlEnable false|maxHaTransferByteInSecond 104857600
syncFromLastFile false|asyncLearner false
"""

BROKER_FILE = """
# the file of a controller-mode broker
brokerClusterName = DefaultCluster
brokerName=broker-a
brokerId : 0
namesrvAddr=10.0.0.1:9876;10.0.0.2:9876
listenPort 30911
enableControllerMode=true
allAckInSyncStateSet = true
inSyncReplicas=2
storePathRootDir=/data/store
storePathCommitLog=/disk1/commitlog,\\
                   /disk2/commitlog
deleteWhen=04;16
fileReservedTime = 48
brokerRole = SYNC_MASTER
flushDiskType=SYNC_FLUSH
"""


def violations_of(text: str) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        StoreConfig.from_properties(text)
    return caught.value.violations


@pytest.mark.parametrize("row", DEFAULTS.strip().replace("\n", "|").split("|"))
def test_default_equals_rocketmq(row: str) -> None:
    key, _, expected = row.partition(" ")
    about = {each.key: each for each in Configuration.options().values()}[key]
    assert about.codec.format(about.default) == expected


def test_every_row_of_the_table_is_whole() -> None:
    options = Configuration.options()
    assert len({about.key for about in options.values()}) == len(options)
    assert len(options) == len(StoreConfig.options()) + len(ReplicaConfig.options())
    for name, about in options.items():
        assert about.name == name
        assert about.help, name
        assert about.effect, name
        assert about.codec.accepts(about.default), name
        assert about.codec.parse(about.codec.format(about.default)) == about.default, name


def test_no_key_of_the_table_is_named_as_one_without_effect() -> None:
    keys = {about.key for about in Configuration.options().values()}
    assert keys & KEYS_WITHOUT_EFFECT == set()


@pytest.mark.parametrize("unit", ["ms", "bytes"])
def test_unit_stands_at_the_end_of_a_name(unit: str) -> None:
    named = [name for name, about in Configuration.options().items() if about.unit == unit]
    assert named
    assert all(unit in name.split("_")[-2:] for name in named)


def test_one_reading_of_a_broker_file_fills_every_part(caplog: pytest.LogCaptureFixture) -> None:
    assert Configuration.from_properties(BROKER_FILE) == Configuration(
        store=StoreConfig(
            root_path="/data/store",
            commit_log_paths=("/disk1/commitlog", "/disk2/commitlog"),
            store_host_port=30911,
            delete_at_hours=(4, 16),
            file_reserved_hours=48,
            broker_role=BrokerRole.SYNC_MASTER,
            flush_disk_type=FlushDiskType.SYNC_FLUSH,
        ),
        replica=ReplicaConfig(
            controller_mode_enable=True,
            all_ack_in_sync_state_set=True,
            in_sync_replicas=2,
        ),
    )
    assert caplog.messages == [
        "4 keys of the configuration have no effect here: "
        "brokerClusterName, brokerName, brokerId, namesrvAddr"
    ]


def test_reading_the_store_part_alone_says_what_it_leaves_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    config = StoreConfig.from_properties(
        "fileReservedTime=1\ninSyncReplicas=2\ntimerWheelEnable=true"
    )
    assert config == StoreConfig(file_reserved_hours=1)
    assert caplog.messages == [
        "2 keys of the configuration have no effect here: timerWheelEnable, inSyncReplicas"
    ]


def test_a_file_of_effective_keys_is_read_without_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    Configuration.from_properties(Configuration().to_properties())
    assert caplog.messages == []


def test_mistakes_in_all_parts_come_in_one_error() -> None:
    with pytest.raises(ConfigError) as caught:
        Configuration.from_properties(
            "inSyncReplicas=two\nhaTransferBatchSize=4194261\nfileReservedTime=-1\nslaveTimeot=1\n"
        )
    assert caught.value.violations == (
        "inSyncReplicas: 'two' is not a whole number; correct it, or leave it out for the "
        "default, 1",
        "slaveTimeot: unknown key; did you mean slaveTimeout?",
        "fileReservedTime (file_reserved_hours): -1 is below the limit of 0 hours; raise it",
        "haTransferBatchSize (ha_transfer_batch_bytes): 4194261 is above the limit of 4194260 "
        "bytes; lower it",
    )


def test_a_batch_queue_file_holds_whole_units() -> None:
    assert violations_of("mapperFileSizeBatchConsumeQueue=938") == (
        "mapperFileSizeBatchConsumeQueue (batch_consume_queue_file_size_bytes): 938 bytes are not "
        "whole units of 46 bytes; use 920",
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "totalReplicas=2\ninSyncReplicas=3",
            "totalReplicas: 2 replicas cannot make 3 copies; raise it",
        ),
        (
            "enableAutoInSyncReplicas=true\nminInSyncReplicas=2",
            "minInSyncReplicas: 2 is above inSyncReplicas 1, which enableAutoInSyncReplicas lowers "
            "towards it; lower it",
        ),
    ],
)
def test_numbers_of_a_quorum_are_checked_together(text: str, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Configuration.from_properties(text)
    assert caught.value.violations == (expected,)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("haMasterAddress=10.0.0.7", "haMasterAddress (ha_master_address): '10.0.0.7' is not"),
        ("haMasterAddress=:10912", "give both, such as 10.0.0.7:10912"),
        ("haMasterAddress=a:0", "is not a host and a port"),
        ("brokerIP1=10.0.0.7:10911", "without a port"),
    ],
)
def test_addresses_are_checked_when_they_are_read(text: str, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Configuration.from_properties(text)
    assert len(caught.value.violations) == 1
    assert expected in caught.value.violations[0]


def test_parts_of_another_type_are_refused() -> None:
    with pytest.raises(ArgumentTypeError, match="store"):
        Configuration(store=ReplicaConfig())  # type: ignore[arg-type]


def test_a_whole_configuration_is_changed_by_names_of_all_parts() -> None:
    changed = Configuration().replace(in_sync_replicas=2, file_reserved_hours=1)
    assert changed.replica.in_sync_replicas == 2
    assert changed.store.file_reserved_hours == 1
    with pytest.raises(ConfigError, match="did you mean in_sync_replicas"):
        Configuration().replace(in_sync_replica=2)
    with pytest.raises(ConfigError) as caught:
        Configuration().replace(in_sync_replicas=0, file_reserved_hours=-1)
    assert len(caught.value.violations) == 2


def test_toml_and_environment_fill_every_part() -> None:
    expected = Configuration(
        store=StoreConfig(file_reserved_hours=48), replica=ReplicaConfig(in_sync_replicas=2)
    )
    assert Configuration.from_toml("file_reserved_hours = 48\ninSyncReplicas = 2") == expected
    environ = {"RMQSTORE_fileReservedTime": "48", "RMQSTORE_IN_SYNC_REPLICAS": "2"}
    assert Configuration.from_env(environ=environ) == expected


def test_every_setting_round_trips_through_properties() -> None:
    changed: dict[str, Any] = {}
    for name, about in Configuration.options().items():
        if isinstance(about.default, bool) and name != "force_verify_property_crc":
            changed[name] = not about.default
        elif type(about.default) is int:
            changed[name] = about.default + 1 if about.default != about.high else about.default - 1
    changed["batch_consume_queue_file_size_bytes"] = 46

    config = Configuration().replace(
        **changed,
        ha_host_address="::1",
        ha_master_address="10.0.0.7:10912",
        root_path=" /dätä/ 1=2:#\\",
        commit_log_paths=("/a b", "/c"),
        commit_log_read_only_paths=("/c",),
        delete_at_hours=(),
        delay_levels_ms=(90_000, 86_400_000),
        logical_disk_used_ratio_max=0.25,
        compatibility="5.3",
        broker_role=BrokerRole.SLAVE,
        flush_disk_type=FlushDiskType.SYNC_FLUSH,
    )

    text = config.to_properties()
    assert text.isascii()
    assert Configuration.from_properties(text) == config.replace(root_path="/dätä/ 1=2:#\\")

    read_back = StoreConfig.from_properties(config.store.to_properties())
    assert read_back == config.store.replace(root_path="/dätä/ 1=2:#\\")


def test_all_mistakes_of_a_file_come_in_one_error(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("fileReservedTime=three\nmapedFileSizeCommitLogs=1\ndeleteFileBatchMax=0\n")
    with pytest.raises(ConfigError) as caught:
        StoreConfig.from_properties(file)
    assert caught.value.source == str(file)
    assert caught.value.violations == (
        "fileReservedTime: 'three' is not a whole number; correct it, or leave it out for the "
        "default, 72",
        "mapedFileSizeCommitLogs: unknown key; did you mean mapedFileSizeCommitLog?",
        "deleteFileBatchMax (delete_file_batch_max): 0 is below the limit of 1 files; raise it",
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("flushDiskType=SYNC", "flushDiskType: 'SYNC' is not SYNC_FLUSH or ASYNC_FLUSH"),
        ("warmMapedFileEnable=yes", "warmMapedFileEnable: 'yes' is not true or false"),
        ("messageDelayLevel=1s 5x", "messageDelayLevel: '1s 5x' is not durations with the unit"),
        (
            "messageDelayLevel=",
            "messageDelayLevel (delay_levels_ms): () is wrong; give at least one level",
        ),
        ("deleteWhen=24", "deleteWhen (delete_at_hours): (24,) has an hour outside 0..23"),
        ("mappedFileSizeCommitLog=4294967296", "is above the limit of 2147483647 bytes; lower it"),
        ("forceVerifyPropCRC=true", "set both to true, or this key to false"),
        ("maxIndexNum=200000000", "index files of 4020000040 bytes, the limit is 2147483647"),
        ("storePathCommitLog=/a\nreadOnlyCommitLogStorePaths=/a", "leave one writable"),
        ("storeType=other", "use default or defaultRocksDB"),
        ("compatibility=5.4", "use auto, 5.3 or 5.5"),
        ("a=\\u12g4", "line 1: \\u takes four hex digits"),
    ],
)
def test_violation_names_key_limit_and_cure(text: str, expected: str) -> None:
    violations = violations_of(text)
    assert len(violations) == 1 or text.startswith("a=")
    assert expected in violations[0]


def test_constructor_refuses_a_wrong_type() -> None:
    with pytest.raises(ConfigError, match="fileReservedTime"):
        StoreConfig(file_reserved_hours="72")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="fileReservedTime"):
        StoreConfig(file_reserved_hours=True)


def test_configuration_is_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        StoreConfig().file_reserved_hours = 1  # type: ignore[misc]


def test_replace_changes_and_checks() -> None:
    assert StoreConfig().replace(file_reserved_hours=1).file_reserved_hours == 1
    with pytest.raises(ConfigError, match="did you mean file_reserved_hours"):
        StoreConfig().replace(file_reserve_hours=1)
    with pytest.raises(ConfigError, match="below the limit"):
        StoreConfig().replace(file_reserved_hours=-1)


def test_toml_takes_both_names_flat_and_in_tables(tmp_path: Path) -> None:
    file = tmp_path / "store.toml"
    file.write_text(
        'root_path = "/dätä"\nfileReservedTime = 48\nbrokerName = "passed over"\n'
        "[rmqstore]\ndelete_at_hours = [4, 16]\n"
        "[rmqstore.commit_log]\nfile_size_bytes = 4096\n"
        '[flush]\ndisk_type = "SYNC_FLUSH"\ndelay_levels_ms = "1s 2s"\n',
        encoding="utf-8",
    )
    assert StoreConfig.from_toml(file) == StoreConfig(
        root_path="/dätä",
        file_reserved_hours=48,
        delete_at_hours=(4, 16),
        commit_log_file_size_bytes=4096,
        flush_disk_type=FlushDiskType.SYNC_FLUSH,
        delay_levels_ms=(1000, 2000),
    )


def test_unknown_toml_key_is_answered_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="file_reserved_hour: unknown key; did you mean file_res"):
        StoreConfig.from_toml("file_reserved_hour = 1")
    with pytest.raises(ConfigError, match=r"not TOML: .*; correct that line"):
        StoreConfig.from_toml("= 1")


def test_environment_takes_both_names() -> None:
    environ = {
        "RMQSTORE_FILE_RESERVED_HOURS": "48",
        "RMQSTORE_flushDiskType": "SYNC_FLUSH",
        "RMQSTORE_brokerName": "passed over",
        "HOME": "/",
    }
    assert StoreConfig.from_env(environ=environ) == StoreConfig(
        file_reserved_hours=48, flush_disk_type=FlushDiskType.SYNC_FLUSH
    )


def test_unknown_variable_is_answered_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean RMQSTORE_FILE_RESERVED_HOURS"):
        StoreConfig.from_env(environ={"RMQSTORE_FILE_RESERVE_HOURS": "1"})


def test_missing_file_is_a_config_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        StoreConfig.from_properties(tmp_path / "absent.conf")


@pytest.mark.parametrize("content", [b"\0" * 400, b"brokerName=b\n\0\0\0"])
def test_a_file_with_nuls_is_named_with_its_cure_and_no_nul(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_bytes(content)
    for read in (BrokerConfig, ControllerConfig, NameserverConfig, TlsConfig, Configuration):
        with pytest.raises(
            ConfigError, match=r"is NUL, .*or restore the file from a copy"
        ) as caught:
            read.from_properties(path)
        assert "\0" not in str(caught.value)


def test_consume_queue_size_is_rounded_up_to_whole_units() -> None:
    config = StoreConfig(consume_queue_file_size_bytes=1001)
    assert config.consume_queue_file_whole_units_bytes == 1020


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1\nb = 2\nc:3\nd 4\ne\n", {"a": "1", "b": "2", "c": "3", "d": "4", "e": ""}),
        ("# c\n! c\n\n  # c\n a=1", {"a": "1"}),
        ("a=1,\\\n   2,\\\n\t3", {"a": "1,2,3"}),
        ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        ("a\\ b\\==x\\ty\\u00e9\\z", {"a b=": "x\tyéz"}),
        ("a=\\ud83d\\ude00", {"a": "\U0001f600"}),
        ("a==b=c", {"a": "=b=c"}),
        ("a : = b", {"a": "= b"}),
        ("a=1 \r\nb=2\rc=3", {"a": "1 ", "b": "2", "c": "3"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=1\\\n# no comment", {"a": "1# no comment"}),
    ],
)
def test_properties_are_read_as_java_reads_them(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected


@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), st.text()))
def test_written_properties_read_back(pairs: dict[str, str]) -> None:
    text = format_properties(pairs)
    assert text.isascii()
    assert parse_properties(text) == pairs


@given(st.lists(st.integers(min_value=1, max_value=10**6).map(lambda seconds: seconds * 1000)))
def test_delay_levels_read_back(levels_ms: list[int]) -> None:
    assert parse_delay_levels(format_delay_levels(levels_ms)) == tuple(levels_ms)
